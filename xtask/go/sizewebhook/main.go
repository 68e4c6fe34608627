// The yardstick of `cargo xtask bench admission`: a webhook as kubebuilder scaffolds it, on controller-runtime, with one rule: the size of an
// etcd cluster is 1, 3, 5 or 7.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

type EtcdClusterSpec struct {
	Size    *int32 `json:"size,omitempty"`
	Version string `json:"version,omitempty"`
}

type EtcdCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              EtcdClusterSpec `json:"spec,omitempty"`
}

func (in *EtcdCluster) DeepCopyObject() runtime.Object {
	out := &EtcdCluster{TypeMeta: in.TypeMeta, Spec: in.Spec}
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return out
}

type sizeRule struct{}

func judge(cluster *EtcdCluster) (admission.Warnings, error) {
	size := int32(3)
	if cluster.Spec.Size != nil {
		size = *cluster.Spec.Size
	}
	if size < 1 || size > 7 || size%2 == 0 {
		return nil, fmt.Errorf("spec.size: must be 1, 3, 5 or 7, not %d", size)
	}
	return nil, nil
}

func (sizeRule) ValidateCreate(_ context.Context, cluster *EtcdCluster) (admission.Warnings, error) {
	return judge(cluster)
}

func (sizeRule) ValidateUpdate(_ context.Context, _, cluster *EtcdCluster) (admission.Warnings, error) {
	return judge(cluster)
}

func (sizeRule) ValidateDelete(context.Context, *EtcdCluster) (admission.Warnings, error) {
	return nil, nil
}

func main() {
	port := flag.Int("port", 9443, "port on 127.0.0.1")
	certificates := flag.String("cert-dir", "", "folder with tls.crt and tls.key")
	flag.Parse()
	ctrl.SetLogger(zap.New())

	version := schema.GroupVersion{Group: "etcd.database.coreos.com", Version: "v1beta2"}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(version, &EtcdCluster{})
	metav1.AddToGroupVersion(scheme, version)

	server := webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: *port, CertDir: *certificates})
	server.Register("/validate-etcdcluster", admission.WithValidator(scheme, sizeRule{}))
	if err := server.Start(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
