package kubectl

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/globalreserve/globalreserve/pkg/version"
)

// versions is what version prints; the server's is nil with --client.
type versions struct {
	Client version.Info  `json:"client"`
	Server *version.Info `json:"server,omitempty"`
}

type versionOptions struct {
	command
	client bool
}

func newVersionCommand(env *environment) *cobra.Command {
	o := &versionOptions{command: command{environment: env}}
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of the plugin and of the server",
		Example: "  kubectl reserve version --client",
		Args:    takes("no arguments", cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	cmd.Flags().BoolVar(&o.client, "client", false, "only that of the plugin; asks no server")
	o.addOutput(cmd, outputYAML, outputJSON)
	return cmd
}

// run prints what it knows even where the server does not answer, and then fails.
func (o *versionOptions) run(ctx context.Context) error {
	v := versions{Client: version.Get()}
	var failed error
	if !o.client {
		v.Server, failed = get[version.Info](ctx, o.environment, "/version", nil)
	}
	if !o.forPeople() {
		return errors.Join(o.show(&v, nil, ""), failed)
	}
	fmt.Fprintln(o.Out, "Client:", v.Client)
	if v.Server != nil {
		fmt.Fprintln(o.Out, "Server:", *v.Server)
	}
	return failed
}
