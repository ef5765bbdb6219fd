package kubectl

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

type nodesOptions struct {
	command
	overcommitted bool
}

func newNodesCommand(env *environment) *cobra.Command {
	o := &nodesOptions{command: command{environment: env}}
	cmd := &cobra.Command{
		Use:     "nodes [NAME]",
		Aliases: []string{"node"},
		Short:   "Show what is allocatable, bound, reserved and free on the nodes",
		Long: `Show the ledger's account of every node, or of one node with the pods and reservations on it: what schedulers may give away
(ALLOCATABLE), what bound pods use (BOUND), what is reserved and not bound yet (RESERVED), and what is
FREE for all others. FREE below zero: more is bound than there is.

Amounts are in cores, in Gi and the like, or in units; -o wide shows milli-CPU and bytes, exactly, and all
resources of the nodes.`,
		Example: `  kubectl reserve nodes

  # One node, and who is on it
  kubectl reserve nodes node-7

  # Where is more bound than there is?
  kubectl reserve nodes --overcommitted`,
		Args:              takes("at most one NAME", cobra.MaximumNArgs(1)),
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
		ValidArgsFunction: env.completeArgs(1, listNodes),
	}
	cmd.Flags().BoolVar(&o.overcommitted, "overcommitted", false, "only nodes with more bound than they have")
	o.addOutput(cmd, outputTable, outputWide, outputYAML, outputJSON, outputName)
	return cmd
}

func (o *nodesOptions) run(ctx context.Context, args []string) error {
	if o.overcommitted && len(args) > 0 {
		return usageErrorf("--overcommitted chooses among all nodes: leave it out, or leave out %q", args[0])
	}
	if len(args) > 0 {
		return o.one(ctx, args[0])
	}
	query, which := url.Values{}, "nodes"
	if o.overcommitted {
		query.Set("overcommitted", "true")
		which = "overcommitted nodes"
	}
	whole, err := getAll(ctx, o.environment, "/v1/nodes", query,
		func(a *reserver.NodesAnswer) (*[]reserver.Node, *string) { return &a.Nodes, &a.Continue })
	if err != nil {
		return err
	}
	return o.show(whole, nodeNames(whole.Nodes), "There are no "+which+" in the ledger.", o.table(whole.Nodes))
}

// one shows a node, the pods on it, what reservations keep there, and its devices.
func (o *nodesOptions) one(ctx context.Context, name string) error {
	answer, err := get[reserver.NodeAnswer](ctx, o.environment, "/v1/nodes/"+name, nil)
	if err != nil {
		return err
	}
	nodes := []reserver.Node{answer.Node}
	return o.show(answer, nodeNames(nodes), "", o.table(nodes), o.podTable(answer.Allocations, true),
		o.slotTable(answer.Slots), deviceTable(answer.Node.Devices), draTable(answer.DRADevices))
}

// draTable shows who has the DRA devices of a node.
func draTable(devices []reserver.DRADevice) *metav1.Table {
	table := newTable("DRA device", "Driver", "Pool", "Status", "Claim", "Pod")
	for i := range devices {
		d := &devices[i]
		status := string(v1alpha1.ExtendedResourceAvailable)
		switch {
		case d.Double:
			status = phaseDouble
		case len(d.Claims) > 0:
			status = string(v1alpha1.ExtendedResourceBound)
		}
		var pods []string
		claims := namesOf(d.Claims, func(c *reserver.DRAClaim) string {
			pods = append(pods, c.Pods...)
			if c.Claim == "" {
				return others
			}
			return c.Namespace + "/" + c.Claim
		})
		addRow(table, d.Name, d.Driver, d.Pool, status, orNone(strings.Join(claims, ",")), orNone(strings.Join(pods, ",")))
	}
	return table
}

// deviceTable shows who has the devices of a node, by the server's account.
func deviceTable(devices []reserver.NodeDevice) *metav1.Table {
	table := newTable("Device", "Resource", "ID", "Free", "Pod", "Reservation", "+Properties")
	for i := range devices {
		d := &devices[i]
		pods := namesOf(d.Pods, func(p *reserver.PodName) string {
			if p.Namespace == "" {
				return others
			}
			return p.Namespace + "/" + p.Pod
		})
		addRow(table, d.Name, d.Resource, d.ID, map[bool]string{true: "Yes", false: "No"}[d.Free],
			orNone(strings.Join(pods, ",")), orNone(d.Reservation), labels.FormatLabels(d.Properties))
	}
	return table
}

// slotTable shows what reservations keep on a node, and how much of it no pod uses yet.
func (o *nodesOptions) slotTable(slots []reserver.NodeSlot) *metav1.Table {
	table := newTable("Reservation", "Slot", "Keeps", "Unused", "Used by", "Expires", "+Policy", "+Priority",
		"+Preemptible", "+Host ports")
	for i := range slots {
		n, slot := &slots[i], &slots[i].Slot
		name := n.Namespace + "/" + n.Reservation
		switch {
		case n.Namespace == "":
			name = others
		case n.Reservation == "":
			name = "pod " + n.Namespace + "/" + slot.Pod // in memory
		}
		users := namesOf(slot.Consumers, func(c *reserver.Consumer) string { return c.Pod })
		addRow(table, name, orNone(slot.Name), amountList(slot.Requests, o.wide()), amountList(slot.Free, o.wide()),
			orNone(strings.Join(users, ",")), cmp.Or(until(slot.ExpiresAt, o.clock.Now()), "never"), n.Policy,
			strconv.Itoa(int(n.Priority)), strconv.FormatBool(n.Preemptible),
			orNone(strings.Join(slot.HostPorts, ",")))
	}
	return table
}

// table has one row per node and resource; a node is named in its first row.
func (o *nodesOptions) table(nodes []reserver.Node) *metav1.Table {
	table := newTable("Node", "Status", "+Pods", "Resource", "Allocatable", "Bound", "Reserved", "Free", "Use")
	for i := range nodes {
		n := &nodes[i]
		name, status, pods := n.Name, nodeStatus(n), strconv.Itoa(n.AllocationCount)
		for _, resource := range shownResources(n, o.wide()) {
			a := n.Resources[resource]
			cell := func(value int64) string { return amount(resource, value, o.wide()) }
			addRow(table, name, status, pods, resource, cell(a.Allocatable), cell(a.Bound), cell(a.Reserved), cell(a.Free),
				percent(a))
			name, status, pods = "", "", ""
		}
	}
	return table
}

// nodeStatus says what is out of the ordinary with a node.
func nodeStatus(n *reserver.Node) string {
	var states []string
	if !n.Exists {
		states = append(states, "Gone")
	}
	if n.Unschedulable {
		states = append(states, "Cordoned")
	}
	if n.Overcommitted {
		states = append(states, "Overcommitted")
	}
	return cmp.Or(strings.Join(states, ","), "OK")
}

// shownResources chooses the resources of a node to show: cpu, memory and what else it has or what is
// used of it. Storage and the pod count are left to wide tables unless there is too little.
func shownResources(n *reserver.Node, all bool) []string {
	names := slices.SortedFunc(maps.Keys(n.Resources), compareResources)
	if all {
		return names
	}
	return slices.DeleteFunc(names, func(name string) bool {
		a := n.Resources[name]
		switch corev1.ResourceName(name) {
		case corev1.ResourceCPU, corev1.ResourceMemory:
			return false
		case corev1.ResourcePods, corev1.ResourceEphemeralStorage:
			return a.Free >= 0
		default:
			return a == reserver.NodeAmount{}
		}
	})
}

// percent is how much of a resource is bound and reserved, at most 999.
func percent(a reserver.NodeAmount) string {
	used := a.Allocatable - a.Free
	if used <= 0 {
		return "0%"
	}
	return fmt.Sprintf("%.0f%%", min(999, 100*float64(used)/float64(a.Allocatable)))
}

func nodeNames(nodes []reserver.Node) []string {
	return namesOf(nodes, func(n *reserver.Node) string { return "node/" + n.Name })
}
