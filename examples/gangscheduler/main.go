// Command gangscheduler is an example of a gang scheduler behind GlobalReserve. What it does
// is in package gangsched; README.md beside this file says how to try it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/globalreserve/globalreserve/examples/gangscheduler/gangsched"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends it at once
	err := gangsched.NewCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gangscheduler:", err)
		os.Exit(1)
	}
}
