// Package command is the command line of the server: it turns flags into app.Options and has the subcommands. It is
// a package of its own, so that the reference in docs can be made from it.
package command

import (
	"fmt"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"

	"github.com/globalreserve/globalreserve/pkg/app"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/version"
)

// New returns the command globalreserve.
func New() *cobra.Command {
	options := app.DefaultOptions()
	cmd := &cobra.Command{
		Use:   "globalreserve",
		Short: "One ledger of node capacity behind all schedulers of a cluster",
		Long: "globalreserve answers, for every scheduler of a Kubernetes cluster, whether there is still capacity\n" +
			"for a pod on a node. It serves the scheduler-extender protocol (filter, prioritize, preempt, bind)\n" +
			"and a REST API for group schedulers (/reserve, /unreserve, /v1).",
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
	cmd.AddCommand(policy.NewCommand(), newCertificate())
	return cmd
}
