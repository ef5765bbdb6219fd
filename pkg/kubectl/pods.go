package kubectl

import (
	"cmp"
	"context"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

type podsOptions struct {
	command
	allNamespaces bool
	summary       bool
	// scheduler, node and state select allocations.
	scheduler, node, state string
}

func newPodsCommand(env *environment) *cobra.Command {
	o := &podsOptions{command: command{environment: env}}
	cmd := &cobra.Command{
		Use:     "pods",
		Aliases: []string{"pod", "claims"},
		Short:   "List pods with capacity in the ledger, by scheduler",
		Long: `List the pods that have capacity in the ledger, with their schedulers: Reserved (until EXPIRES), Binding (a bind is
under way) or Bound.`,
		Example: `  kubectl reserve pods

  # What does each scheduler have in the whole cluster?
  kubectl reserve pods -A --summary

  # Reserved by one scheduler and not bound yet
  kubectl reserve pods -A --scheduler batch-scheduler --state Reserved`,
		Args: takes("no arguments", cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "those of all namespaces")
	flags.BoolVar(&o.summary, "summary", false, "only how many and how much, per scheduler and state")
	flags.StringVar(&o.scheduler, "scheduler", "", "only those of this scheduler")
	flags.StringVar(&o.node, "node", "", "only those on this node")
	flags.StringVar(&o.state, "state", "", "only those that are Reserved, Binding or Bound")
	o.addOutput(cmd, outputTable, outputWide, outputYAML, outputJSON, outputName)
	completeFixed(cmd, "state", allocationStates...)
	completeBy(cmd, "node", env.completeNames(listNodes))
	return cmd
}

// allocationStates are the states an allocation has, in the order it goes through them.
var allocationStates = []string{"Reserved", "Binding", "Bound"}

func (o *podsOptions) run(ctx context.Context) error {
	query, err := o.query()
	if err != nil {
		return err
	}
	s, err := o.connectServer(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	whole := &reserver.AllocationsAnswer{Allocations: []reserver.Allocation{}}
	err = getPages(ctx, s, "/v1/allocations", query, func(page *reserver.AllocationsAnswer) string {
		whole.Revision = page.Revision
		whole.Allocations = append(whole.Allocations, page.Allocations...)
		return page.Continue
	})
	if err != nil {
		return err
	}
	slices.SortStableFunc(whole.Allocations, func(a, b reserver.Allocation) int { return cmp.Compare(a.Scheduler, b.Scheduler) })
	table := o.allocationTable(whole.Allocations, o.allNamespaces)
	if o.summary {
		table = summaryTable(whole.Allocations, o.wide())
	}
	names := namesOf(whole.Allocations, func(c *reserver.Allocation) string { return "pod/" + c.Pod })
	return o.show(whole, names, "No pods with capacity in the ledger were found.", table)
}

// query checks the flags and makes the parameters of /v1/allocations of them.
func (o *podsOptions) query() (url.Values, error) {
	if o.summary && !o.forPeople() {
		return nil, usageErrorf("--summary prints a table: leave out -o %s", o.format)
	}
	namespace, err := o.scope(o.allNamespaces)
	if err != nil {
		return nil, err
	}
	query := url.Values{}
	for name, value := range map[string]string{"namespace": namespace, "scheduler": o.scheduler, "node": o.node} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if o.state != "" {
		state, err := oneOf("--state", o.state, allocationStates...)
		if err != nil {
			return nil, err
		}
		query.Set("state", state)
	}
	return query, nil
}

func (o *command) allocationTable(allocations []reserver.Allocation, withNamespace bool) *metav1.Table {
	columns := []string{"Scheduler", "Pod", "State", "Node", "CPU", "Memory", "Others", "Expires", "+Reservation", "+Priority", "+Host ports", "+UID"}
	if withNamespace {
		columns = slices.Insert(columns, 1, "Namespace")
	}
	table, raw := newTable(columns...), o.wide()
	for i := range allocations {
		c, expires := &allocations[i], none
		if !c.ExpiresAt.IsZero() {
			expires = until(c.ExpiresAt, o.clock.Now())
		}
		cells := []any{
			orNone(c.Scheduler), c.Pod, c.State, c.Node, requested(c.Requests, corev1.ResourceCPU, raw),
			requested(c.Requests, corev1.ResourceMemory, raw), otherRequests(c.Requests, raw), expires,
			orNone(c.Reservation), strconv.Itoa(int(c.Priority)), orNone(strings.Join(c.HostPorts, ",")), orNone(c.UID),
		}
		if withNamespace {
			cells = slices.Insert(cells, 1, any(c.Namespace))
		}
		addRow(table, cells...)
	}
	return table
}

func requested(amounts reserver.Amounts, name corev1.ResourceName, raw bool) string {
	return amount(string(name), amounts[string(name)], raw)
}

// otherRequests are those that have no column of their own. The pod count is one of every pod.
func otherRequests(amounts reserver.Amounts, raw bool) string {
	others := maps.Clone(amounts)
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods} {
		delete(others, string(name))
	}
	return amountList(others, raw)
}

// summaryTable adds allocations up by scheduler and state.
func summaryTable(allocations []reserver.Allocation, raw bool) *metav1.Table {
	type key struct{ scheduler, state string }
	type sum struct {
		pods    int
		amounts reserver.Amounts
	}
	sums := map[key]*sum{}
	for i := range allocations {
		k := key{allocations[i].Scheduler, allocations[i].State}
		if sums[k] == nil {
			sums[k] = &sum{amounts: reserver.Amounts{}}
		}
		sums[k].pods++
		for name, value := range allocations[i].Requests {
			sums[k].amounts[name] += value
		}
	}
	keys := slices.SortedFunc(maps.Keys(sums), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.scheduler, b.scheduler),
			cmp.Compare(slices.Index(allocationStates, a.state), slices.Index(allocationStates, b.state)))
	})
	table := newTable("Scheduler", "State", "Pods", "CPU",
		"Memory", "Others")
	for _, k := range keys {
		s := sums[k]
		addRow(table, orNone(k.scheduler), k.state, strconv.Itoa(s.pods), requested(s.amounts, corev1.ResourceCPU, raw),
			requested(s.amounts, corev1.ResourceMemory, raw), otherRequests(s.amounts, raw))
	}
	return table
}
