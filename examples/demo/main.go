/*
Command demo is what `make demo` runs. It brings up a real control plane with 50 nodes and lets two
kube-schedulers and a gang scheduler race for more pods than fit: first each on its own view of the
cluster, then with GlobalReserve behind all of them. It prints what became of both and then stays up to
be looked at, until Ctrl-C.

  - demo.go     the course of the demo, from the first run to the last line
  - race.go     one run: pods, waiting, result
  - report.go   the table, and what makes the demo fail
  - tally.go    who is on which node, and the recording of a run; picture.go makes docs/demo.html and its picture of one
  - page.go     the page that replays both runs and has the switches, from the files in page/
  - churn.go    what the switches do: pods come and go, the schedulers ask GlobalReserve or do not
  - cluster.go  the control plane with nodes, definitions, policies and schedulers; hints.go the commands to try
  - stay.go     what `make cluster` runs: the same cluster, empty, for people who write a scheduler

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
	var o demoOptions
	command := &cobra.Command{
		Use:           "demo",
		Short:         "Race three schedulers on 50 nodes, without and with GlobalReserve",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			return runDemo(command.Context(), command.OutOrStdout(), o)
		},
	}
	command.Flags().BoolVar(&o.once, "once", false,
		"exit after the table; the exit code is not 0 if a node was overcommitted with GlobalReserve, or a pod that fits "+
			"was left out")
	command.Flags().StringVar(&o.record, "record", "",
		"write what happened in both runs into this `file`, for the command page")
	command.AddCommand(newClusterCommand())
	command.AddCommand(&cobra.Command{
		Use:    "page FOLDER",
		Short:  "Make " + resultFile + " and " + pictureFile + " of a folder from its " + recordingFile,
		Args:   cobra.ExactArgs(1),
		Hidden: true, // see make demo-page
		RunE:   func(_ *cobra.Command, args []string) error { return writeResult(args[0]) },
	})
	scheduler := gangsched.NewCommand()
	scheduler.Hidden = true
	command.AddCommand(scheduler)
	return command
}

func newClusterCommand() *cobra.Command {
	var nodes, cpus int
	var policyFile string
	command := &cobra.Command{
		Use:   "cluster",
		Short: "Run an empty cluster with GlobalReserve, for who writes a scheduler, until Ctrl-C",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return runCluster(command.Context(), command.OutOrStdout(), nodes, cpus, policyFile)
		},
	}
	command.Flags().IntVar(&nodes, "nodes", 10, "how many nodes there are")
	command.Flags().IntVar(&cpus, "cpus", 16, "how many CPUs each node has")
	command.Flags().StringVar(&policyFile, "policy-file", "",
		"the policy file of the server, which reads it again when it changes")
	return command
}
