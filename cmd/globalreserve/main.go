// Command globalreserve is the GlobalReserve server. pkg/app/command has its command line, and pkg/app wires up what
// the server does.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/globalreserve/globalreserve/pkg/app/command"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends it at once
	err := command.New().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "globalreserve:", err)
		os.Exit(1)
	}
}
