package kubectl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
)

const rootLong = `kubectl reserve shows and changes what GlobalReserve, the ledger of node capacity behind all schedulers
of a cluster, keeps.

  create                                  a Reservation object, through the Kubernetes API
  devices                                 ExtendedResource objects and who has them, through the Kubernetes API
  nodes, explain, pods, gangs, pending    what the ledger has, from the GlobalReserve server
  drain                                   nodes, once each of their pods has a place elsewhere
  ui                                      the live page of all that, on this machine
  check                                   whether the cluster is protected, and what to do where it is not

kubectl itself shows and deletes Reservations: kubectl get, describe and delete rsv.

The server is reached at --ledger-url URL or, without it, by forwarding a port to a ready pod of its Service
(--service), as kubectl port-forward does.

Exit codes: 0 done; 1 refused, or not there; 2 the command line makes no sense; 3 GlobalReserve or the
Kubernetes API does not answer; 4 created, but not available when --wait ended.`

const rootExample = `  # Keep 4 cores and 8Gi on one node for ten minutes, and wait until they are kept
  kubectl reserve create maintenance --cpu 4 --memory 8Gi --ttl 10m --wait

  # Where is capacity left?
  kubectl reserve nodes

  # Why does a pod wait?
  kubectl reserve explain web-0`

// Execute runs the plugin with the arguments after its name, writes errors to the error stream and
// returns the exit code.
func Execute(ctx context.Context, streams genericiooptions.IOStreams, args []string) int {
	// The libraries' own log lines (a lost port forward, for instance) would come before and say less
	// than the error that follows.
	klog.SetOutput(io.Discard)
	klog.LogToStderr(false)
	return execute(ctx, newEnvironment(streams), args)
}

// NewCommand returns the command with all that belong to it, for the reference in docs.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	return newCommand(newEnvironment(streams))
}

func execute(ctx context.Context, env *environment, args []string) int {
	defer env.close()
	cmd := newCommand(env)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	if err != nil {
		// More lines than one are more errors, or what a server said.
		fmt.Fprintln(env.ErrOut, "error:", strings.ReplaceAll(err.Error(), "\n", "\n  "))
	}
	return exitCode(err)
}

func newCommand(env *environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:           "kubectl-reserve",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl reserve"},
		Short:         "Show and reserve node capacity that all schedulers of a cluster share",
		Long:          rootLong,
		Example:       rootExample,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          knownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SetIn(env.In)
	cmd.SetOut(env.Out)
	cmd.SetErr(env.ErrOut)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if coded := new(codedError); errors.As(err, &coded) {
			return coded // it says what to give
		}
		return usageErrorf("%w: see %s --help", err, cmd.CommandPath())
	})
	// Some thirty flags of every command would bury its own.
	cmd.SetUsageTemplate(strings.Replace(cmd.UsageTemplate(), "{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}",
		"  -n, --namespace, --context, --ledger-url, --service and more: see {{.Root.CommandPath}} --help", 1))
	env.addFlags(cmd.PersistentFlags())
	env.completeGlobalFlags(cmd)
	cmd.AddCommand(
		newCreateCommand(env), newNodesCommand(env), newExplainCommand(env), newPodsCommand(env), newGangsCommand(env),
		newPendingCommand(env), newListCommand(env), newDevicesCommand(env), newDrainCommand(env), newUICommand(env),
		newCheckCommand(env), newVersionCommand(env),
	)
	for _, sub := range cmd.Commands() { // no flag of a command takes a file
		sub.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if _, known := sub.GetFlagCompletionFunc(f.Name); !known && f.NoOptDefVal == "" {
				completeFixed(sub, f.Name)
			}
		})
	}
	return cmd
}

// knownCommand refuses arguments of the root command: they are misspelled commands.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "see kubectl reserve --help"
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return usageErrorf("there is no command %q: %s", args[0], hint)
}

// takes checks the number of a command's arguments, and says in words how many it takes.
func takes(what string, check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if check(cmd, args) != nil {
			return usageErrorf("%s takes %s and got %d: see %s --help", cmd.CommandPath(), what, len(args), cmd.CommandPath())
		}
		return nil
	}
}
