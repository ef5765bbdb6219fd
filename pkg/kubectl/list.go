package kubectl

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

type listOptions struct {
	command
}

func newListCommand(env *environment) *cobra.Command {
	o := &listOptions{command{environment: env}}
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List what is reserved, and how far the drains of nodes are",
		Long: `List the drains of nodes that go on, and then the other reservations that keep capacity or wait for it.

DONE is how many places of a drain are used by the pods that were made, LEFT how many are kept for those to come.
USED is how many of the slots of a reservation pods use.`,
		Example: `  kubectl reserve list

  # How far is the drain of a node, and what does it wait for?
  kubectl reserve list -A`,
		Args: takes("no arguments", cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	cmd.Flags().BoolVarP(&env.allNamespaces, "all-namespaces", "A", false, "those of all namespaces")
	o.addOutput(cmd, outputTable, outputYAML, outputJSON, outputName)
	return cmd
}

func (o *listOptions) run(ctx context.Context) error {
	namespace, err := o.namespace()
	if err != nil {
		return err
	}
	whole, err := getAll(ctx, o.environment, "/v1/reservations", queryOf(map[string]string{"namespace": namespace}),
		func(a *reserver.ReservationsAnswer) (*[]reserver.Reservation, *string) {
			return &a.Reservations, &a.Continue
		})
	if err != nil {
		return err
	}
	names := namesOf(whole.Reservations, func(r *reserver.Reservation) string {
		return strings.Replace("reservation/"+reservationName(r), "reservation/pod/", "pod/", 1)
	})
	return o.show(whole, names, "Nothing is reserved.", drainTable(whole.Drains), o.table(whole))
}

// drainTable has one row for each drain.
func drainTable(drains []reserver.Drain) *metav1.Table {
	table := newTable("Drain", "Nodes", "Done", "Left", "Waits-for")
	for _, d := range drains {
		done, left, waits := 0, 0, []string(nil)
		for _, of := range d.Owners {
			done, left = done+of.Done, left+of.Left
			if of.WaitsFor != "" {
				waits = append(waits, fmt.Sprintf("%s: %s", cmp.Or(of.Owner, of.Reservation), of.WaitsFor))
			}
		}
		addRow(table, d.Name, firstOf(d.Nodes), strconv.Itoa(done), strconv.Itoa(left),
			orNone(strings.Join(waits, "; ")))
	}
	return table
}

// table has a row for each reservation that is no drain's.
func (o *listOptions) table(answer *reserver.ReservationsAnswer) *metav1.Table {
	table := newTable("Namespace", "Reservation", "Scheduler", "Used", "Nodes", "Ends", "Waits-for")
	ofDrain := map[string]bool{}
	for _, d := range answer.Drains {
		for _, of := range d.Owners {
			ofDrain[of.Namespace+"/"+of.Reservation] = true
		}
	}
	for i := range answer.Reservations {
		r := &answer.Reservations[i]
		if ofDrain[r.Namespace+"/"+r.Name] {
			continue
		}
		used, slots, nodes, waits := 0, len(r.Slots), []string(nil), ""
		for s := range r.Slots {
			if nodes = append(nodes, r.Slots[s].Node); len(r.Slots[s].Consumers) > 0 {
				used++
			}
		}
		if r.Pending != nil {
			slots, waits = r.Pending.SlotCount, r.Pending.Message
		}
		nodes = slices.Compact(slices.Sorted(slices.Values(nodes)))
		addRow(table, r.Namespace, reservationName(r), orNone(r.Scheduler), fmt.Sprintf("%d/%d", used, slots),
			orNone(firstOf(nodes)), orNone(until(r.ExpiresAt, o.clock.Now())), orNone(waits))
	}
	if !o.allNamespaces {
		dropColumn(table, 0)
	}
	return table
}

// reservationName names a reservation: one in memory by its pod.
func reservationName(r *reserver.Reservation) string {
	if r.Name == "" && len(r.Slots) > 0 {
		return "pod/" + r.Slots[0].Pod
	}
	return r.Name
}

// firstOf names the first of some nodes, and says how many more there are.
func firstOf(nodes []string) string {
	const most = 3
	if len(nodes) <= most {
		return strings.Join(nodes, ",")
	}
	return fmt.Sprintf("%s +%d", strings.Join(nodes[:most], ","), len(nodes)-most)
}
