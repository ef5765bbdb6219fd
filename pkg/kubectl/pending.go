package kubectl

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

type pendingOptions struct {
	command
	scheduler, waits string
}

func newPendingCommand(env *environment) *cobra.Command {
	o := &pendingOptions{command: command{environment: env}}
	cmd := &cobra.Command{
		Use:   "pending",
		Short: "List pods that were refused and have no node since: why, and who holds what they lack",
		Long: `List the pods of a namespace, or of all, that were refused capacity and have no node since, those that wait longest first.

AGE is since when a pod is refused. WHY is what it waits for:

  server       nothing can be decided now
  permission   it may not be given capacity
  gang         its gang cannot start
  reservation  capacity is kept for it, and its scheduler has not bound it there yet
  scheduler    there is capacity for it, and its scheduler has not tried since
  limit        its namespace, or its caller, uses as much as it may
  node         no node has as much as it asks for, even empty
  devices      others have the devices it needs
  capacity     others have the capacity it needs

CLOSEST is the node where it lacks least, with what is missing there; HELD-BY is who holds most of that. explain says
more of one pod.`,
		Example: `  kubectl reserve pending

  # Which pods of the cluster would need another node?
  kubectl reserve pending -A --waits node`,
		Args: takes("no arguments", cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	cmd.Flags().BoolVarP(&env.allNamespaces, "all-namespaces", "A", false, "those of all namespaces")
	cmd.Flags().StringVar(&o.scheduler, "scheduler", "", "only those of this scheduler")
	addChoice(cmd, &o.waits, "waits", "", "only those that wait for this",
		"server", "permission", "gang", "reservation", "scheduler", "limit", "node", "devices", "capacity")
	o.addOutput(cmd, outputTable, outputWide, outputYAML, outputJSON, outputName)
	return cmd
}

func (o *pendingOptions) run(ctx context.Context) error {
	namespace, err := o.namespace()
	if err != nil {
		return err
	}
	query := queryOf(map[string]string{"namespace": namespace, "scheduler": o.scheduler, "waits": o.waits})
	needs := []reserver.NodeNeed{} // of all pages
	whole, err := getAll(ctx, o.environment, "/v1/pending", query,
		func(page *reserver.PendingAnswer) (*[]reserver.PendingPod, *string) {
			needs = append(needs, page.Needs...)
			return &page.Pods, &page.Continue
		})
	if err != nil {
		return err
	}
	whole.Needs = needs
	names := namesOf(whole.Pods, func(p *reserver.PendingPod) string { return "pod/" + p.Explanation.Pod })
	return o.show(whole, names, "No pods wait that were refused.", o.table(whole.Pods))
}

func (o *pendingOptions) table(pods []reserver.PendingPod) *metav1.Table {
	table := newTable("Age", "Namespace", "Pod", "Scheduler", "Asks", "Why", "Closest", "Held-by", "+Times", "+Path",
		"+Message")
	for i := range pods {
		p := &pods[i]
		e := &p.Explanation
		closest, holder := o.closest(e.Closest)
		addRow(table, age(p.Since, o.clock.Now()), e.Namespace, e.Pod, orNone(e.Scheduler),
			orNone(amountList(e.Requests, o.wide())), p.WaitsFor,
			closest, holder, strconv.Itoa(p.Times), p.Path, e.Message)
	}
	if !o.allNamespaces {
		dropColumn(table, 1)
	}
	return table
}

// closest names a node with what is missing there, and who holds most of it.
func (o *pendingOptions) closest(c *reserver.ClosestNode) (node, holder string) {
	if c == nil {
		return none, none
	}
	var missing []string
	for _, m := range c.Missing {
		missing = append(missing, m.Resource+" "+amount(m.Resource, m.Missing, o.wide()))
	}
	node, holder = c.Node, none
	if len(missing) > 0 {
		node += " (-" + strings.Join(missing, ", -") + ")"
	}
	if len(c.Holders) > 0 {
		holder = holderName(&c.Holders[0])
	}
	return node, holder
}
