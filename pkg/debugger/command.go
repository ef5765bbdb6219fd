package debugger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

const (
	// maxAnswer bounds an account on the wire, in bytes: 150,000 pods are some 60 MB.
	maxAnswer = 1 << 30
	timeout   = time.Minute
)

// ExitError is an error that the program ends with a code of its own for. Without Err there is nothing to say.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string { return fmt.Sprint(e.Err) }
func (e *ExitError) Unwrap() error { return e.Err }

// The exit codes.
const (
	exitDiffers = 1
	exitFailed  = 2
)

// errDiffers says that there are differences, which have been printed.
var errDiffers = errors.New("the ledger differs from the cluster")

// command is what the flags say.
type command struct {
	server client.Options
	output string
}

// NewCommand returns the command `debug` with its subcommands `dump` and `diff`.
func NewCommand() *cobra.Command {
	c := &command{server: client.Options{
		URL: "http://127.0.0.1:23456", Timeout: timeout, RetryFor: time.Nanosecond, MaxAnswer: maxAnswer,
	}}
	cmd := &cobra.Command{
		Use:   "debug",
		Short: "Show the ledger of a running server, and compare it with the cluster",
		Long: "Show the ledger of a running server, and compare it with the cluster. A server writes the same to its log\n" +
			"when it gets the signal SIGUSR2. The server that is asked answers itself, also where another one decides.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := cmd.PersistentFlags()
	flags.StringVar(&c.server.URL, "server", c.server.URL, "URL of the server")
	flags.StringVar(&c.server.CAFile, "server-ca-file", "",
		"file with the authorities that the server's certificate must come from; without it those of the system")
	flags.StringVar(&c.server.CertFile, "server-cert-file", "", "file with the certificate to show to the server")
	flags.StringVar(&c.server.KeyFile, "server-key-file", "", "file with the key of that certificate")
	flags.StringVar(&c.server.TokenFile, "server-token-file", "",
		"file with a token of the cluster to show to the server, instead of a certificate")
	flags.StringVarP(&c.output, "output", "o", "text", "output format: text or json")
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &ExitError{exitFailed, fmt.Errorf("%w: see %s --help", err, cmd.CommandPath())}
	})
	cmd.AddCommand(&cobra.Command{
		Use:   "diff",
		Short: "Compare the ledger with what the API server lists now",
		Long: "Have the server compare its ledger with what the API server lists now: nodes, pods, and where it decides " +
			"also\n" +
			"reservations, devices and their claims. What differs is looked at again after " + pause.String() +
			", as writes are always\n" +
			"under way.\n\n" +
			"Exit codes: 0 no differences; 1 there are some; 2 something failed.",
		Args: noArgs, RunE: c.run(c.diff),
	}, &cobra.Command{
		Use: "dump", Short: "Print the whole ledger",
		Long: "Print the whole ledger.\n\nExit codes: 0 done; 2 something failed.",
		Args: noArgs, RunE: c.run(c.dump),
	})
	return cmd
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return &ExitError{exitFailed, fmt.Errorf("%w: see %s --help", cobra.NoArgs(cmd, args), cmd.CommandPath())}
	}
	return nil
}

// run runs a subcommand and gives its error a code.
func (c *command) run(do func(ctx context.Context, server *client.Client,
	out io.Writer) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		if c.output != "text" && c.output != "json" {
			return &ExitError{exitFailed, fmt.Errorf("--output %q is unknown; give text or json", c.output)}
		}
		server, err := client.New(c.server)
		if err != nil {
			return &ExitError{exitFailed, fmt.Errorf("--server: %w", err)}
		}
		defer server.Close()
		switch err := do(cmd.Context(), server, cmd.OutOrStdout()); {
		case errors.Is(err, errDiffers):
			return &ExitError{exitDiffers, err}
		case err != nil:
			return &ExitError{exitFailed, err}
		default:
			return nil
		}
	}
}

func (c *command) dump(ctx context.Context, server *client.Client, out io.Writer) error {
	answer, err := client.Get[reserver.DumpAnswer](ctx, server, "/debug/ledger", nil)
	if err != nil {
		return fmt.Errorf("asking the server for its ledger (check --server): %w", err)
	}
	if c.output == "json" {
		return writeJSON(out, answer)
	}
	for line := range lines(answer) {
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	return nil
}

func (c *command) diff(ctx context.Context, server *client.Client, out io.Writer) error {
	answer, err := client.Get[reserver.DiffAnswer](ctx, server, "/debug/diff", nil)
	if err != nil {
		return fmt.Errorf("asking the server how its ledger differs from the cluster (check --server): %w", err)
	}
	if c.output == "json" {
		err = writeJSON(out, answer)
	} else {
		err = writeText(out, answer)
	}
	if err == nil && len(answer.Differences) > 0 {
		return errDiffers
	}
	return err
}

func writeText(out io.Writer, a *reserver.DiffAnswer) error {
	for i := range a.Differences {
		if _, err := fmt.Fprintln(out, &a.Differences[i]); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out, "server %s: %d differences in %v\n", a.Server, len(a.Differences)+a.More, a.Compared)
	return err
}

func writeJSON(out io.Writer, v any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}
