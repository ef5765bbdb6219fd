package kubectl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"
)

// The values of -o.
const (
	outputTable = "table"
	outputWide  = "wide"
	outputYAML  = "yaml"
	outputJSON  = "json"
	outputName  = "name"
)

// command is what all commands have: the environment, and what -o and --no-headers ask for.
type command struct {
	*environment
	format    string
	noHeaders bool
}

// addOutput adds -o with the formats that the command has.
func (o *command) addOutput(cmd *cobra.Command, allowed ...string) {
	addChoice(cmd, &o.format, "output", "o", "output format: "+strings.Join(allowed, "|"), allowed...)
	if slices.Contains(allowed, outputTable) {
		cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "print tables without their headers")
	}
}

func (o *command) wide() bool { return o.format == outputWide }

// forPeople reports whether people are to read the output.
func (o *command) forPeople() bool {
	return o.format == "" || o.format == outputTable || o.format == outputWide
}

// newTable makes a table in the shape that kubectl's printers print. Columns that begin with + are for -o wide only.
func newTable(columns ...string) *metav1.Table {
	table := &metav1.Table{}
	for _, name := range columns {
		name, wide := strings.CutPrefix(name, "+")
		table.ColumnDefinitions = append(table.ColumnDefinitions, metav1.TableColumnDefinition{
			Name: name, Type: "string", Priority: map[bool]int32{true: 1}[wide],
		})
	}
	return table
}

func addRow(table *metav1.Table, texts ...string) {
	cells := make([]any, len(texts))
	for i, text := range texts {
		cells[i] = oneLine(text)
	}
	table.Rows = append(table.Rows, metav1.TableRow{Cells: cells})
}

func dropColumn(table *metav1.Table, at int) {
	table.ColumnDefinitions = slices.Delete(table.ColumnDefinitions, at, at+1)
	for i := range table.Rows {
		table.Rows[i].Cells = slices.Delete(table.Rows[i].Cells, at, at+1)
	}
}

// printTable prints a table with kubectl's own printer.
func (o *command) printTable(w io.Writer, table *metav1.Table) error {
	return printers.NewTablePrinter(printers.PrintOptions{Wide: o.wide(), NoHeaders: o.noHeaders}).PrintObj(table, w)
}

// writeYAML writes a value in YAML, also where a text in it has characters that YAML has as escapes only.
func writeYAML(value any, to io.Writer) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("write the answer as yaml: %w", err)
	}
	text = plain(text)
	written, err := yaml.JSONToYAML(text)
	switch {
	case err != nil:
		return fmt.Errorf("write the answer as yaml: %w", err)
	case !bytes.Equal(written, plain(written)):
		// Marks of direction, which YAML would take as they are: in a text without double quotes their escapes mean no more
		// than what is written. JSON is YAML, too.
		var indented bytes.Buffer
		if err := json.Indent(&indented, append(text, '\n'), "", "  "); err != nil {
			return fmt.Errorf("write the answer as yaml: %w", err)
		}
		written = indented.Bytes()
	}
	_, err = to.Write(written)
	return err
}

// show prints an answer as -o asks for it: whole, the names in it, or the tables that have rows. nothing
// is said where none has.
func (o *command) show(answer any, names []string, nothing string, tables ...*metav1.Table) error {
	switch o.format {
	case outputYAML:
		return writeYAML(answer, o.Out)
	case outputJSON:
		encoder := json.NewEncoder(o.Out)
		encoder.SetIndent("", "    ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(answer)
	case outputName:
		for _, name := range names {
			fmt.Fprintln(o.Out, oneLine(name))
		}
		return nil
	}
	tables = slices.DeleteFunc(tables, func(t *metav1.Table) bool { return len(t.Rows) == 0 })
	if len(tables) == 0 {
		fmt.Fprintln(o.ErrOut, nothing)
	}
	for i, table := range tables {
		if i > 0 {
			fmt.Fprintln(o.Out)
		}
		if err := o.printTable(o.Out, table); err != nil {
			return err
		}
	}
	return nil
}

// printFields prints names and values, one a line, and leaves out those without a value.
func (o *command) printFields(fields [][2]string) error {
	w := tabwriter.NewWriter(o.Out, 0, 8, 2, ' ', 0)
	for _, field := range fields {
		if field[1] != "" {
			fmt.Fprintf(w, "%s:\t%s\n", field[0], oneLine(field[1]))
		}
	}
	return w.Flush()
}

// printSection prints a table under a title, indented, or that there is nothing.
func printSection(w io.Writer, title string, table *metav1.Table) {
	if len(table.Rows) == 0 {
		fmt.Fprintf(w, "\n%s:  %s\n", title, none)
		return
	}
	var text strings.Builder
	// A table printed to memory cannot fail.
	_ = (&command{}).printTable(&text, table)
	fmt.Fprintf(w, "\n%s:\n", title)
	for line := range strings.Lines(text.String()) {
		fmt.Fprintf(w, "  %s\n", strings.TrimRight(line, " \n"))
	}
}

// until writes a moment as "in 9m", or "now" where it has come; nothing where there is none.
func until(t, now time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case !t.After(now):
		return "now"
	default:
		return "in " + duration.HumanDuration(t.Sub(now))
	}
}

func age(since, now time.Time) string {
	if since.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(since))
}

// choice is a flag that takes what is known, in whatever case, and its default.
type choice struct {
	flag, byDefault string
	value           *string
	known           []string
}

// addChoice adds a flag with its completion. What into has is its default.
func addChoice(cmd *cobra.Command, into *string, name, short, usage string, known ...string) {
	flag := "--" + name
	if short != "" {
		flag = "-" + short
	}
	cmd.Flags().VarP(&choice{flag: flag, byDefault: *into, value: into, known: known}, name, short, usage)
	completeFixed(cmd, name, known...)
}

// String, Set and Type make it a pflag.Value.
func (c *choice) String() string { return *c.value }

// Set keeps a value as it is known.
func (c *choice) Set(given string) error {
	for _, k := range append([]string{c.byDefault}, c.known...) {
		if strings.EqualFold(given, k) {
			*c.value = k
			return nil
		}
	}
	return usageErrorf("%s %q is not known here: give one of %s", c.flag, given, strings.Join(c.known, ", "))
}

// Type is the placeholder in the help.
func (c *choice) Type() string { return "string" }

// namesOf are the names of items.
func namesOf[T any](items []T, name func(item *T) string) []string {
	names := make([]string, len(items))
	for i := range items {
		names[i] = name(&items[i])
	}
	return names
}
