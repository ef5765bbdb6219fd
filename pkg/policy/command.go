package policy

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"sigs.k8s.io/yaml"
)

// NewCommand returns the command `policy` with its subcommand `validate FILE`.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Work with policy files",
		Args:  cobra.NoArgs,
		// Without it the misspelled name of a command would be answered with the help, as a success.
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newValidateCommand())
	return cmd
}

func newValidateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE",
		Short: "Check a policy file as the server would, and print it with all defaults",
		Long: "Check a policy file as the server would, and print it with all defaults filled in.\n" +
			"Each mistake is printed on a line of its own, and the exit status is not zero if there is any.",
		Args: cobra.ExactArgs(1),
		RunE: validateFile,
	}
}

func validateFile(cmd *cobra.Command, args []string) error {
	cmd.SilenceUsage = true // from here on the usage is right and the file may be wrong
	path := args[0]
	p, err := Load(path)
	if err != nil {
		for _, line := range mistakes(err) {
			cmd.PrintErrf("%s: %s\n", path, line)
		}
		return fmt.Errorf("%s is not a valid policy", path)
	}
	effective, err := yaml.Marshal(p)
	if err != nil {
		return fmt.Errorf("%s: print the policy: %w", path, err)
	}
	out := cmd.OutOrStdout()
	_, err = fmt.Fprintf(out, "%s: valid\n", path)
	if err == nil && p.Reservations.DefaultTTL.Duration == 0 {
		_, err = fmt.Fprintln(out, "# reservations.defaultTTL is not set: the server's flag --reservation-ttl applies")
	}
	if err == nil {
		_, err = out.Write(effective)
	}
	return err
}

// mistakes returns one line per mistake.
func mistakes(err error) []string {
	var several utilerrors.Aggregate
	if !errors.As(err, &several) {
		return []string{err.Error()}
	}
	var lines []string
	for _, e := range utilerrors.Flatten(several).Errors() {
		lines = append(lines, e.Error())
	}
	return lines
}
