// Command globalreserve is the GlobalReserve server. This package only turns
// flags into app.Options; what the server does is wired up in pkg/app.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"

	"github.com/globalreserve/globalreserve/pkg/app"
	"github.com/globalreserve/globalreserve/pkg/certificate"
	"github.com/globalreserve/globalreserve/pkg/debugger"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends it at once
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "globalreserve:", err)
		exit := &debugger.ExitError{Code: 1}
		errors.As(err, &exit)
		os.Exit(exit.Code)
	}
}

func newCommand() *cobra.Command {
	options := app.DefaultOptions()
	cmd := &cobra.Command{
		Use:   "globalreserve",
		Short: "One ledger of node capacity behind all schedulers of a cluster",
		Long: "globalreserve answers, for every scheduler of a Kubernetes cluster, whether there is still capacity\n" +
			"for a pod on a node. It serves the scheduler-extender protocol (filter, prioritize, preempt, bind)\n" +
			"and a REST API for group schedulers (/reserve, /unreserve, /v1).\n\n" +
			"On SIGUSR2 it writes its ledger to the log, and how that differs from the cluster: see globalreserve debug.",
		Args:          cobra.NoArgs,
		Version:       version.Get().String(),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// The garbage collector knows of the container's limit, unless GOMEMLIMIT says another. Where there is
			// none the program runs without.
			_, _ = memlimit.Set()
			return app.Run(cmd.Context(), options, cmd.ErrOrStderr())
		},
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w: see %s --help", err, cmd.CommandPath())
	})
	options.AddFlags(cmd.Flags())
	cmd.AddCommand(policy.NewCommand(), debugger.NewCommand(), certificate.NewCommand())
	return cmd
}
