// Package main is passthrough, a scheduler extender that decides nothing: filter lets every node pass, bind
// POSTs the binding. It is what GlobalReserve's speed is compared with, and written the way most
// extenders are: encoding/json, the API's own types, net/http and client-go with their defaults. Only
// the client's rate limit is off, which would otherwise be all there is to measure.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "path of a kubeconfig")
	address := flag.String("address", "127.0.0.1:23457", "address to serve on")
	flag.Parse()
	if err := serve(*kubeconfig, *address); err != nil {
		fmt.Fprintln(os.Stderr, "passthrough:", err)
		os.Exit(1)
	}
}

func serve(kubeconfig, address string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/filter", filter)
	mux.HandleFunc("/bind", func(w http.ResponseWriter, r *http.Request) { bind(w, r, client) })
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: time.Minute}
	return server.ListenAndServe()
}

func filter(w http.ResponseWriter, r *http.Request) {
	var args extenderv1.ExtenderArgs
	if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer(w, &extenderv1.ExtenderFilterResult{Nodes: args.Nodes, NodeNames: args.NodeNames})
}

func bind(w http.ResponseWriter, r *http.Request, client kubernetes.Interface) {
	var args extenderv1.ExtenderBindingArgs
	if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var result extenderv1.ExtenderBindingResult
	err := client.CoreV1().Pods(args.PodNamespace).Bind(r.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: args.PodNamespace, Name: args.PodName, UID: args.PodUID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: args.Node},
	}, metav1.CreateOptions{})
	if err != nil {
		result.Error = err.Error()
	}
	answer(w, &result)
}

func answer(w http.ResponseWriter, result any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(result); err != nil {
		fmt.Fprintln(os.Stderr, "passthrough:", err)
	}
}
