// The client of `cargo xtask bench admission`: one request after the other on each of its kept TLS connections, every answer read whole and checked.
//
// It says `measuring` when its warm-up is over and `ended` when the load is, so that whoever runs it can look at the server between
// the two, and then what it saw, as JSON.
package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"
)

const patience = 10 * time.Second

func main() {
	address := flag.String("address", "", "of the server")
	name := flag.String("name", "", "in its certificate")
	authority := flag.String("ca", "", "file")
	file := flag.String("request", "", "file with one whole request of HTTP/1.1")
	connections := flag.Int("connections", 1, "how many")
	seconds := flag.Int("seconds", 5, "how long, after the warm-up")
	flag.Parse()

	pem, err := os.ReadFile(*authority)
	must(err)
	request, err := os.ReadFile(*file)
	must(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	config := &tls.Config{RootCAs: roots, ServerName: *name, NextProtos: []string{"http/1.1"}}

	streams := make([]*tls.Conn, *connections)
	for i := range streams {
		streams[i], err = tls.Dial("tcp", *address, config)
		must(err)
	}
	from := time.Now().Add(time.Second)
	until := from.Add(time.Duration(*seconds) * time.Second)
	latencies := make([][]time.Duration, *connections)
	var all sync.WaitGroup
	for i, stream := range streams {
		all.Go(func() { latencies[i] = send(stream, request, from, until) })
	}
	time.Sleep(time.Until(from))
	fmt.Println("measuring")
	time.Sleep(time.Until(until))
	fmt.Println("ended")
	all.Wait()

	sorted := slices.Concat(latencies...)
	slices.Sort(sorted)
	if len(sorted) == 0 {
		must(fmt.Errorf("not one request was answered in time"))
	}
	milliseconds := func(part float64) float64 {
		index := min(int(float64(len(sorted))*part), len(sorted)-1)
		return float64(sorted[index].Nanoseconds()) / 1e6
	}
	must(json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"requests": float64(len(sorted)), "p50": milliseconds(0.5), "p99": milliseconds(0.99), "p999": milliseconds(0.999),
	}))
}

// Only what began after `from` and ended before `until` counts.
func send(stream *tls.Conn, request []byte, from, until time.Time) []time.Duration {
	latencies := make([]time.Duration, 0, 1<<14)
	reader := bufio.NewReaderSize(stream, 16<<10)
	body := make([]byte, 0, 16<<10)
	for {
		started := time.Now()
		if started.After(until) {
			return latencies
		}
		must(stream.SetDeadline(started.Add(patience)))
		_, err := stream.Write(request)
		must(err)
		body, err = answer(reader, body)
		must(err)
		ended := time.Now()
		if started.After(from) && ended.Before(until) {
			latencies = append(latencies, ended.Sub(started))
		}
	}
}

var yes = []byte(`"allowed":true`)

func answer(reader *bufio.Reader, body []byte) ([]byte, error) {
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		return body, err
	}
	if response.ContentLength < 0 || response.ContentLength > int64(cap(body)) {
		return body, fmt.Errorf("an answer of %d bytes", response.ContentLength)
	}
	body = body[:response.ContentLength]
	if _, err = io.ReadFull(response.Body, body); err != nil {
		return body, err
	}
	if response.StatusCode != http.StatusOK || !bytes.Contains(body, yes) {
		return body, fmt.Errorf("not a yes: %d %s", response.StatusCode, body)
	}
	return body, nil
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
