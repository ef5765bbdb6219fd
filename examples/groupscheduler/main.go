// Command groupscheduler is an example of a group (gang) scheduler behind GlobalReserve. What it does
// is in package groupsched; README.md beside this file says how to try it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/globalreserve/globalreserve/examples/groupscheduler/groupsched"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends it at once
	err := groupsched.NewCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "groupscheduler:", err)
		os.Exit(1)
	}
}
