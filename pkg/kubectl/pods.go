package kubectl

import (
	"cmp"
	"context"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

type podsOptions struct {
	command
	summary bool
	// scheduler, node and state select allocations.
	scheduler, node, state string
}

func newPodsCommand(env *environment) *cobra.Command {
	o := &podsOptions{command: command{environment: env}}
	cmd := &cobra.Command{
		Use:     "pods",
		Aliases: []string{"pod"},
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
	flags.BoolVarP(&env.allNamespaces, "all-namespaces", "A", false, "those of all namespaces")
	flags.BoolVar(&o.summary, "summary", false, "only how many and how much, per scheduler and state")
	flags.StringVar(&o.scheduler, "scheduler", "", "only those of this scheduler")
	flags.StringVar(&o.node, "node", "", "only those on this node")
	addChoice(cmd, &o.state, "state", "", "only those that are Reserved, Binding or Bound", podStates...)
	o.addOutput(cmd, outputTable, outputWide, outputYAML, outputJSON, outputName)
	completeBy(cmd, "node", env.completeNames(listNodes))
	return cmd
}

// stateReserved is that of a pod that a slot is kept for; in the other states it has an allocation.
const stateReserved = "Reserved"

// podStates are the states the capacity of a pod goes through, in order.
var podStates = []string{stateReserved, "Binding", "Bound"}

func (o *podsOptions) run(ctx context.Context) error {
	query, err := o.query()
	if err != nil {
		return err
	}
	whole, err := o.read(ctx, query)
	if err != nil {
		return err
	}
	table := o.podTable(whole.Pods, o.allNamespaces)
	if o.summary {
		table = summaryTable(whole.Pods, o.wide())
	}
	names := namesOf(whole.Pods, func(p *podCapacity) string { return "pod/" + p.Pod })
	return o.show(whole, names, "No pods with capacity in the ledger were found.", table)
}

// podsAnswer is what is shown: the pods that have capacity in the ledger.
type podsAnswer struct {
	Revision uint64
	Pods     []podCapacity
}

// podCapacity is an allocation, or, in state Reserved, a slot that is kept for one pod alone.
type podCapacity struct {
	reserver.Allocation

	ExpiresAt time.Time `json:",omitzero"`
}

// read asks for the slots and then for the allocations, because the one turns into the other.
func (o *podsOptions) read(ctx context.Context, query url.Values) (*podsAnswer, error) {
	var slots []reserver.NodeSlot
	var allocations []reserver.Allocation
	whole := &podsAnswer{}
	if o.state == "" || o.state == stateReserved {
		err := getPages(ctx, o.environment, "/v1/reservations", maps.Clone(query),
			func(page *reserver.ReservationsAnswer) string {
				whole.Revision = page.Revision
				for _, r := range page.Reservations {
					for _, slot := range r.Slots {
						slots = append(slots, reserver.NodeSlot{
							Namespace: r.Namespace, Reservation: r.Name, Scheduler: r.Scheduler, Priority: r.Priority, Slot: slot,
						})
					}
				}
				return page.Continue
			})
		if err != nil {
			return nil, err
		}
	}
	if o.state != stateReserved {
		if o.state != "" {
			query.Set("state", o.state)
		}
		err := getPages(ctx, o.environment, "/v1/allocations", query, func(page *reserver.AllocationsAnswer) string {
			whole.Revision = page.Revision
			allocations = append(allocations, page.Allocations...)
			return page.Continue
		})
		if err != nil {
			return nil, err
		}
	}
	whole.Pods = podsOf(allocations, slots)
	return whole, nil
}

// podsOf are the pods that have allocations, or slots of their own, by scheduler.
func podsOf(allocations []reserver.Allocation, slots []reserver.NodeSlot) []podCapacity {
	pods, allocated := make([]podCapacity, 0, len(allocations)), map[reserver.PodName]bool{}
	for i := range allocations {
		a := &allocations[i]
		allocated[reserver.PodName{Namespace: a.Namespace, Pod: a.Pod, UID: a.UID}] = true
		pods = append(pods, podCapacity{Allocation: *a})
	}
	for i := range slots {
		n, s := &slots[i], &slots[i].Slot
		name := reserver.PodName{Namespace: n.Namespace, Pod: s.Pod, UID: s.UID}
		if s.Pod == "" || len(s.Consumers) > 0 || allocated[name] {
			continue
		}
		reservation := s.Within
		if n.Reservation != "" {
			reservation = n.Namespace + "/" + n.Reservation + "/" + s.Name
		}
		pods = append(pods, podCapacity{ExpiresAt: s.ExpiresAt, Allocation: reserver.Allocation{
			Namespace: n.Namespace, Pod: s.Pod, UID: s.UID, Node: s.Node, State: stateReserved, Scheduler: n.Scheduler,
			Priority: n.Priority, Requests: s.Requests, HostPorts: s.HostPorts, Reservation: reservation, Devices: s.Devices,
		}})
	}
	slices.SortStableFunc(pods, func(a, b podCapacity) int {
		return cmp.Or(cmp.Compare(a.Scheduler, b.Scheduler), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod))
	})
	return pods
}

// query checks the flags and makes parameters of all of them but the state.
func (o *podsOptions) query() (url.Values, error) {
	if o.summary && !o.forPeople() {
		return nil, usageErrorf("--summary prints a table: leave out -o %s", o.format)
	}
	namespace, err := o.namespace()
	if err != nil {
		return nil, err
	}
	return queryOf(map[string]string{"namespace": namespace, "scheduler": o.scheduler, "node": o.node}), nil
}

func (o *command) podTable(pods []podCapacity, withNamespace bool) *metav1.Table {
	table := newTable("Scheduler", "Namespace", "Pod", "State", "Node", "CPU", "Memory", "Others", "Expires",
		"+Reservation", "+Priority", "+Host ports", "+UID")
	for i := range pods {
		c := &pods[i]
		cpu, memory, rest := requestCells(c.Requests, o.wide())
		addRow(table, orNone(c.Scheduler), c.Namespace, cmp.Or(c.Pod, others), c.State, c.Node, cpu, memory, rest,
			orNone(until(c.ExpiresAt, o.clock.Now())),
			orNone(c.Reservation), strconv.Itoa(int(c.Priority)), orNone(strings.Join(c.HostPorts, ",")), orNone(c.UID))
	}
	if !withNamespace {
		dropColumn(table, 1)
	}
	return table
}

// requestCells are those of the columns CPU, Memory and Others. The pod count is one of every pod.
func requestCells(amounts reserver.Amounts, raw bool) (cpu, memory, others string) {
	const cpuName, memoryName = string(corev1.ResourceCPU), string(corev1.ResourceMemory)
	return amount(cpuName, amounts[cpuName], raw), amount(memoryName, amounts[memoryName], raw),
		amountList(amounts, raw, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods)
}

// summaryTable adds pods up by scheduler and state.
func summaryTable(pods []podCapacity, raw bool) *metav1.Table {
	type key struct{ scheduler, state string }
	type sum struct {
		pods    int
		amounts reserver.Amounts
	}
	sums := map[key]*sum{}
	for i := range pods {
		k := key{pods[i].Scheduler, pods[i].State}
		if sums[k] == nil {
			sums[k] = &sum{amounts: reserver.Amounts{}}
		}
		sums[k].pods++
		for name, value := range pods[i].Requests {
			sums[k].amounts[name] += value
		}
	}
	keys := slices.SortedFunc(maps.Keys(sums), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.scheduler, b.scheduler),
			cmp.Compare(slices.Index(podStates, a.state), slices.Index(podStates, b.state)))
	})
	table := newTable("Scheduler", "State", "Pods", "CPU", "Memory", "Others")
	for _, k := range keys {
		cpu, memory, others := requestCells(sums[k].amounts, raw)
		addRow(table, orNone(k.scheduler), k.state, strconv.Itoa(sums[k].pods), cpu, memory, others)
	}
	return table
}
