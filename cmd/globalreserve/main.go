// Command globalreserve is the GlobalReserve server. What its command line means is in pkg/command, what the server
// does is wired up in pkg/app.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/globalreserve/globalreserve/pkg/command"
	"github.com/globalreserve/globalreserve/pkg/debugger"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends it at once
	err := command.New().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "globalreserve:", err)
		exit := &debugger.ExitError{Code: 1}
		errors.As(err, &exit)
		os.Exit(exit.Code)
	}
}
