// The process that holds a pod's namespaces open: it waits to be told to end, and reaps orphans where it is process 1 of a shared namespace.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		for {
			if ended, _ := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); ended <= 0 {
				break
			}
		}
	}
}
