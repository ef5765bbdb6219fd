/*
Command demo is what `make demo` runs. It brings up a real control plane with 50 nodes and lets two
kube-schedulers and a gang scheduler race for more pods than fit: first each on its own view of the
cluster, then with GlobalReserve behind all of them. It prints what became of both and then stays up to
be looked at, until Ctrl-C.

  - demo.go    the course of the demo, from the control plane to the last line
  - race.go    one run: schedulers, pods, waiting, result
  - report.go  the table, and what makes the demo fail

The verdict comes from package clusterload, which watches the API server; the server under test has no
say in it. The gang scheduler runs as a process of its own: this same program, by the hidden command
"gangscheduler".
*/
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/globalreserve/globalreserve/examples/gangscheduler/gangsched"
)

func main() {
	// SIGHUP: the terminal was closed.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	var once bool
	command := &cobra.Command{
		Use:           "demo",
		Short:         "Race three schedulers on 50 nodes, without and with GlobalReserve",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			return runDemo(command.Context(), command.OutOrStdout(), once)
		},
	}
	command.Flags().BoolVar(&once, "once", false,
		"exit after the table; the exit code is not 0 if a node was overcommitted with GlobalReserve, or a pod that fits was left out")
	scheduler := gangsched.NewCommand()
	scheduler.Hidden = true
	command.AddCommand(scheduler)
	return command
}
