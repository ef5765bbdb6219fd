package kubectl

import (
	"cmp"
	"context"
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
	// scheduler, node and state select allocations.
	scheduler, node, state string
}

func newPodsCommand(env *environment) *cobra.Command {
	o := &podsOptions{command: command{environment: env}}
	cmd := &cobra.Command{
		Use:     "pods",
		Aliases: []string{"pod"},
		Short:   "List pods with capacity in the ledger, by scheduler",
		Long: `List the pods that have capacity in the ledger, with their schedulers: Binding (a bind is under way) or Bound.
kubectl reserve list has what is reserved.`,
		Example: `  kubectl reserve pods

  # Which binds of one scheduler are under way?
  kubectl reserve pods -A --scheduler batch-scheduler --state Binding`,
		Args: takes("no arguments", cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.BoolVarP(&env.allNamespaces, "all-namespaces", "A", false, "those of all namespaces")
	flags.StringVar(&o.scheduler, "scheduler", "", "only those of this scheduler")
	flags.StringVar(&o.node, "node", "", "only those on this node")
	addChoice(cmd, &o.state, "state", "", "only those that are Binding or Bound", "Binding", "Bound")
	o.addOutput(cmd, outputTable, outputWide, outputYAML, outputJSON, outputName)
	completeBy(cmd, "node", env.completeNames(listNodes))
	return cmd
}

func (o *podsOptions) run(ctx context.Context) error {
	namespace, err := o.namespace()
	if err != nil {
		return err
	}
	query := queryOf(map[string]string{
		"namespace": namespace, "scheduler": o.scheduler, "node": o.node, "state": o.state,
	})
	whole, err := getAll(ctx, o.environment, "/v1/allocations", query,
		func(a *reserver.AllocationsAnswer) (*[]reserver.Allocation, *string) {
			return &a.Allocations, &a.Continue
		})
	if err != nil {
		return err
	}
	names := namesOf(whole.Allocations, func(a *reserver.Allocation) string { return "pod/" + a.Pod })
	return o.show(whole, names, "No pods with capacity in the ledger were found.",
		o.podTable(whole.Allocations, o.allNamespaces))
}

// podTable lists pods by scheduler.
func (o *command) podTable(pods []reserver.Allocation, withNamespace bool) *metav1.Table {
	pods = slices.Clone(pods)
	slices.SortStableFunc(pods, func(a, b reserver.Allocation) int { return cmp.Compare(a.Scheduler, b.Scheduler) })
	table := newTable("Scheduler", "Namespace", "Pod", "State", "Node", "CPU", "Memory", "Others", "+Reservation",
		"+Priority", "+Host ports", "+UID")
	for i := range pods {
		p := &pods[i]
		cpu, memory, rest := requestCells(p.Requests, o.wide())
		addRow(table, orNone(p.Scheduler), p.Namespace, cmp.Or(p.Pod, others), p.State, p.Node, cpu, memory, rest,
			orNone(p.Reservation), strconv.Itoa(int(p.Priority)), orNone(strings.Join(p.HostPorts, ",")), orNone(p.UID))
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
