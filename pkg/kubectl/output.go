package kubectl

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned/scheme"
)

// The values of -o.
const (
	outputTable = "table"
	outputWide  = "wide"
	outputYAML  = "yaml"
	outputJSON  = "json"
	outputName  = "name"
)

// output is what -o and --no-headers ask for.
type output struct {
	format    string
	noHeaders bool
	allowed   []string
}

// addFlags adds -o with the formats that the command has, and has it checked before the command runs.
func (o *output) addFlags(cmd *cobra.Command, allowed ...string) {
	o.allowed = allowed
	cmd.Flags().StringVarP(&o.format, "output", "o", o.format, "output format: "+strings.Join(allowed, "|"))
	if slices.Contains(allowed, outputTable) {
		cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "print tables without their headers")
	}
	completeFixed(cmd, "output", allowed...)
	cmd.PreRunE = func(*cobra.Command, []string) error { return o.validate() }
}

func (o *output) validate() error {
	if o.format != "" && !slices.Contains(o.allowed, o.format) {
		return usageErrorf("-o %q is not known here: give one of %s", o.format, strings.Join(o.allowed, ", "))
	}
	return nil
}

func (o *output) wide() bool { return o.format == outputWide }

// table tells whether people are to read the output.
func (o *output) table() bool {
	return o.format == "" || o.format == outputTable || o.format == outputWide
}

// newTable makes a table in the shape that kubectl's printers print. Columns that begin with + are
// for -o wide only.
func newTable(columns ...string) *metav1.Table {
	table := &metav1.Table{}
	for _, name := range columns {
		name, wide := strings.CutPrefix(name, "+")
		definition := metav1.TableColumnDefinition{Name: name, Type: "string"}
		if wide {
			definition.Priority = 1
		}
		table.ColumnDefinitions = append(table.ColumnDefinitions, definition)
	}
	return table
}

func addRow(table *metav1.Table, cells ...any) {
	table.Rows = append(table.Rows, metav1.TableRow{Cells: cells})
}

// tablePrinter prints tables with kubectl's own printer. Used for several tables with the same
// columns, it prints their header once.
func (o *output) tablePrinter() printers.ResourcePrinter {
	return printers.NewTablePrinter(printers.PrintOptions{Wide: o.wide(), NoHeaders: o.noHeaders})
}

func (o *output) printTable(w io.Writer, table *metav1.Table) error {
	return o.tablePrinter().PrintObj(table, w)
}

// printObject prints a Reservation or a list of them as yaml, json or name. done is what was done to
// it, such as "created", which only names are printed with.
func (o *output) printObject(w io.Writer, object runtime.Object, done string) error {
	var printer printers.ResourcePrinter
	switch o.format {
	case outputYAML:
		printer = &printers.YAMLPrinter{}
	case outputJSON:
		printer = &printers.JSONPrinter{}
	default:
		printer = &printers.NamePrinter{Operation: done, ShortOutput: o.format == outputName}
	}
	printer = &printers.OmitManagedFieldsPrinter{Delegate: printer}
	return printers.NewTypeSetter(scheme.Scheme).ToPrinter(printer).PrintObj(object, w)
}

// printAnswer prints an answer of the server as yaml or json, or the names in it.
func (o *output) printAnswer(w io.Writer, answer any, names func() []string) error {
	switch o.format {
	case outputYAML:
		text, err := yaml.Marshal(answer)
		if err != nil {
			return fmt.Errorf("write the answer as yaml: %w", err)
		}
		_, err = w.Write(text)
		return err
	case outputJSON:
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "    ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(answer)
	default:
		for _, name := range names() {
			if _, err := fmt.Fprintln(w, name); err != nil {
				return err
			}
		}
		return nil
	}
}
