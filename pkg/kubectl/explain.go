package kubectl

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

func newExplainCommand(env *environment) *cobra.Command {
	o := &command{environment: env}
	cmd := &cobra.Command{
		Use:   "explain POD",
		Short: "Tell why a pod is pending: what is missing where, and who holds it",
		Long: `Tell why a pod has no node: how many nodes refuse it for which reason, what is missing on the node where it
lacks least, and which pods and reservations hold it. Of a pod that has capacity, tell where.

It answers for the ledger only. Node selectors, affinity, taints and volumes are the scheduler's, which writes
what it found into the pod's condition: kubectl describe pod.`,
		Example: `  kubectl reserve explain web-0
  kubectl reserve explain -n batch worker-3 -o wide`,
		Args:              takes("exactly one POD", cobra.ExactArgs(1)),
		RunE:              func(cmd *cobra.Command, args []string) error { return o.explain(cmd.Context(), args[0]) },
		ValidArgsFunction: env.completeArgs(1, listPendingPods),
	}
	o.addOutput(cmd, outputTable, outputWide, outputYAML, outputJSON)
	return cmd
}

func (o *command) explain(ctx context.Context, pod string) error {
	namespace, err := o.namespace()
	if err != nil {
		return err
	}
	query := url.Values{"namespace": {namespace}, "pod": {strings.TrimPrefix(pod, "pod/")}}
	answer, err := get[reserver.ExplainAnswer](ctx, o.environment, "/v1/explain", query)
	if err != nil {
		return err
	}
	if !o.forPeople() {
		return o.show(answer, nil, "")
	}
	return o.printExplanation(answer)
}

func (o *command) printExplanation(a *reserver.ExplainAnswer) error {
	expires, capacity := "", ""
	if !a.ExpiresAt.IsZero() {
		expires = fmt.Sprintf("%s (%s)", a.ExpiresAt.Format(time.RFC3339), until(a.ExpiresAt, o.clock.Now()))
	}
	if a.NodeCount > 0 {
		capacity = strings.TrimSuffix(fmt.Sprintf("%d of %d nodes: %s", a.FitCount, a.NodeCount,
			examples(a.FitExamples, a.FitCount)), ": ")
	}
	err := o.printFields([][2]string{
		{"Pod", a.Namespace + "/" + a.Pod},
		{"State", a.State},
		{"Scheduler", orNone(a.Scheduler)},
		{"Requests", amountList(a.Requests, o.wide())},
		{"Node", a.Node},
		{"Reservation", a.Reservation},
		{"Expires", expires},
		{"Gang", gangField(a.Gang)},
		{"Capacity on", capacity},
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "\n%s\n", sentence(a.Message))
	o.printRefusals(a)
	o.printClosest(a.Closest)
	return nil
}

func (o *command) printRefusals(a *reserver.ExplainAnswer) {
	if len(a.Refusals) == 0 {
		return
	}
	table := newTable("Nodes", "Reason", "Resource", "Which")
	for _, r := range a.Refusals {
		addRow(table, strconv.Itoa(r.Nodes), r.Reason, orNone(r.Resource), examples(r.Examples, r.Nodes))
	}
	printSection(o.Out, "Refused by", table)
}

func (o *command) printClosest(c *reserver.ClosestNode) {
	if c == nil || len(c.Missing) == 0 { // what is not an amount, the message says
		return
	}
	wide := o.wide()
	missing := newTable("Resource", "Requested", "Free", "Missing")
	for _, m := range c.Missing {
		addRow(missing, m.Resource, amount(m.Resource, m.Requested, wide), amount(m.Resource, m.Free, wide),
			amount(m.Resource, m.Missing, wide))
	}
	printSection(o.Out, "Missing on "+c.Node+", where it lacks least", missing)
	if len(c.Holders) == 0 {
		return
	}
	resource := c.Missing[0].Resource
	holders := newTable("Holder", "State", "Amount", "Scheduler")
	for i := range c.Holders {
		h := &c.Holders[i]
		addRow(holders, holderName(h), h.State, amount(resource, h.Amount, wide), orNone(h.Scheduler))
	}
	printSection(o.Out, "Most "+resource+" there is held by", holders)
}

// others stands for names that the user may not see.
const others = "others"

// holderName names the pod or the reservation that holds capacity.
func holderName(h *reserver.Holder) string {
	if h.Namespace == "" {
		return others
	}
	if h.Reservation != "" {
		return "reservation/" + h.Reservation
	}
	return "pod/" + h.Namespace + "/" + h.Pod
}

// examples joins the names of some nodes, and says that there are more.
func examples(names []string, all int) string {
	text := strings.Join(names, ", ")
	if more := all - len(names); more > 0 && len(names) > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// sentence makes a message of the server one: a capital at its start, a full stop at its end.
func sentence(message string) string {
	message = cmp.Or(message, "the server gives no reason")
	first, size := utf8.DecodeRuneInString(message)
	return oneLine(string(unicode.ToUpper(first))+strings.TrimSuffix(message[size:], ".")) + "."
}
