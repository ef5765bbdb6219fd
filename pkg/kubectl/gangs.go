package kubectl

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

type gangsOptions struct {
	command
	state string
}

func newGangsCommand(env *environment) *cobra.Command {
	o := &gangsOptions{command: command{environment: env}}
	cmd := &cobra.Command{
		Use:     "gangs",
		Aliases: []string{"gang"},
		Short:   "List gangs: how many of their pods are bound, and what they wait for",
		Long: `List the gangs of a namespace, or of all: pods that are useful only together, by their PodGroup or by their annotations.

WANTED is how many pods a gang needs, BOUND how many are bound or have finished, and KEPT for how many of the others
capacity is kept. WAITING is since when a gang is refused or, once it has started, since when it is half.

  Incomplete  pods are missing, or nobody knows how many the gang needs
  Waiting     its pods are there, and none is bound
  Starting    some are bound, and capacity is kept for others
  Short       some are bound, and nothing is kept for others
  Whole       as many as it needs are bound, or have finished`,
		Example: `  kubectl reserve gangs

  # Which gangs are half, in the whole cluster?
  kubectl reserve gangs -A --state Short

  # Until when is capacity kept for the rest of them?
  kubectl reserve gangs -o wide`,
		Args: takes("no arguments", cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	cmd.Flags().BoolVarP(&env.allNamespaces, "all-namespaces", "A", false, "those of all namespaces")
	addChoice(cmd, &o.state, "state", "", "only those in this state", "Incomplete", "Waiting", "Starting", "Short",
		"Whole")
	o.addOutput(cmd, outputTable, outputWide, outputYAML, outputJSON, outputName)
	return cmd
}

func (o *gangsOptions) run(ctx context.Context) error {
	namespace, err := o.namespace()
	if err != nil {
		return err
	}
	query := queryOf(map[string]string{"namespace": namespace, "state": o.state})
	whole, err := getAll(ctx, o.environment, "/v1/gangs", query,
		func(a *reserver.GangsAnswer) (*[]reserver.Gang, *string) { return &a.Gangs, &a.Continue })
	if err != nil {
		return err
	}
	names := namesOf(whole.Gangs, func(g *reserver.Gang) string { return "gang/" + g.Name })
	return o.show(whole, names, "No gangs were found.", o.table(whole.Gangs))
}

func (o *gangsOptions) table(gangs []reserver.Gang) *metav1.Table {
	table := newTable("Namespace", "Gang", "Kind", "Scheduler", "Wanted", "Bound", "Kept", "State", "Waiting",
		"+Pending", "+Finished", "+Kept until", "Why")
	for i := range gangs {
		g := &gangs[i]
		waiting := none
		if since := waitsSince(g); !since.IsZero() {
			waiting = age(since, o.clock.Now())
		}
		addRow(table, g.Namespace, g.Name, g.Kind, orNone(g.Scheduler), wanted(g), strconv.Itoa(g.Bound+g.Finished),
			strconv.Itoa(g.Kept),
			g.State, waiting, strconv.Itoa(g.Pending), strconv.Itoa(g.Finished), orNone(until(g.KeptUntil, o.clock.Now())),
			orNone(g.Why))
	}
	if !o.allNamespaces {
		dropColumn(table, 0)
	}
	return table
}

// waitsSince is since when a gang that is half is so, or since when it is refused.
func waitsSince(g *reserver.Gang) time.Time {
	if !g.HalfSince.IsZero() {
		return g.HalfSince
	}
	return g.WaitingSince
}

// wanted is how many pods a gang needs, where that is known.
func wanted(g *reserver.Gang) string {
	if g.Minimum == 0 {
		return none
	}
	return strconv.Itoa(g.Minimum)
}

// gangField says how far a gang is, in one line; "" where there is none.
func gangField(g *reserver.Gang) string {
	if g == nil {
		return ""
	}
	return fmt.Sprintf("%s (%s), %s: %d of %s pods bound, capacity kept for %d", g.Name, g.Kind, cmp.Or(g.State, none),
		g.Bound+g.Finished, wanted(g), g.Kept)
}
