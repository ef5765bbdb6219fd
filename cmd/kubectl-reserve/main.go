// Command kubectl-reserve is the kubectl plugin: on the PATH, kubectl runs it as `kubectl reserve`.
// Its commands are in pkg/kubectl.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/globalreserve/globalreserve/pkg/kubectl"
)

func main() {
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	return kubectl.Execute(ctx, streams, os.Args[1:])
}
