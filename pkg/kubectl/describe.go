package kubectl

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

func newDescribeCommand(env *environment) *cobra.Command {
	o := &command{environment: env}
	return &cobra.Command{
		Use:     "describe NAME...",
		Short:   "Tell all about a reservation: its slots, its consumers, its events",
		Example: "  kubectl reserve describe web-capacity",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageErrorf("kubectl reserve describe takes the names of reservations: kubectl reserve list shows them")
			}
			return nil
		},
		RunE:              func(cmd *cobra.Command, args []string) error { return o.describe(cmd.Context(), args) },
		ValidArgsFunction: env.completeArgs(anyNumber, listReservations),
	}
}

func (o *command) describe(ctx context.Context, names []string) error {
	cluster, namespace, err := o.connect()
	if err != nil {
		return err
	}
	printed := false
	return forEach(names, func(name string) error {
		r, err := cluster.reservations.GlobalreserveV1alpha1().Reservations(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return explainAPIError(fmt.Sprintf("describe reservation %q in namespace %q", name, namespace), err)
		}
		events, eventsErr := eventsOf(ctx, cluster, r)
		if printed {
			fmt.Fprint(o.Out, "\n\n")
		}
		printed = true
		return o.printReservation(r, events, eventsErr)
	})
}

// eventsOf reads the events of a reservation, oldest first.
func eventsOf(ctx context.Context, cluster *cluster, r *v1alpha1.Reservation) ([]corev1.Event, error) {
	list, err := cluster.kube.CoreV1().Events(r.Namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.Set{
		"involvedObject.kind": "Reservation", "involvedObject.name": r.Name, "involvedObject.uid": string(r.UID),
	}.String()})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(list.Items, func(a, b corev1.Event) int { return lastSeen(&a).Compare(lastSeen(&b)) })
	return list.Items, nil
}

// lastSeen is the time of an event, which the two APIs for events keep in different fields.
func lastSeen(event *corev1.Event) time.Time {
	if event.Series != nil {
		return event.Series.LastObservedTime.Time
	}
	return cmp.Or(event.LastTimestamp.Time, event.EventTime.Time, event.CreationTimestamp.Time)
}

func (o *command) printReservation(r *v1alpha1.Reservation, events []corev1.Event, eventsErr error) error {
	now := o.clock.Now()
	err := o.printFields([][2]string{
		{"Name", r.Name},
		{"Namespace", r.Namespace},
		{"Labels", labels.FormatLabels(r.Labels)},
		{"Status", situation(r)},
		{"Nodes", orNone(r.Status.NodeName)},
		{"Consumed", orNone(r.Status.Consumed)},
		{"Created", moment(&r.CreationTimestamp, now)},
		{"Available since", moment(r.Status.AvailableAt, now)},
		{"TTL", describeTTL(r)},
		{"Expires", describeExpiry(r, now)},
		{"Scheduler", orNone(r.Spec.SchedulerName)},
		{"Priority", describePriority(r)},
		{"Policy", string(r.Spec.AllocatePolicy)},
		{"For", describeConsumers(r)},
	})
	if err != nil {
		return err
	}
	o.printSlots(r)
	o.printConditions(r, now)
	o.printEvents(events, eventsErr, now)
	return nil
}

func (o *command) printSlots(r *v1alpha1.Reservation) {
	table := newTable("Name", "Node", "State", "Requests", "Pods")
	states := make(map[string]*v1alpha1.SlotStatus, len(r.Status.Slots))
	for i := range r.Status.Slots {
		states[r.Status.Slots[i].Name] = &r.Status.Slots[i]
	}
	for i := range r.Spec.Slots {
		slot := &r.Spec.Slots[i]
		node, state, pods := slot.NodeName, "", ""
		if s := states[slot.Name]; s != nil {
			node, state, pods = s.NodeName, describeState(s), strings.Join(namesOf(s.Pods,
				func(p *v1alpha1.PodReference) string { return p.Name }), ", ")
		}
		if pods == "" && slot.Pod != nil {
			pods = "only for " + slot.Pod.Name
		}
		addRow(table, slot.Name, orNone(node), orNone(state), describeCapacity(slot), orNone(pods))
	}
	printSection(o.Out, "Slots", table)
}

// describeState tells what became of a slot's capacity, and which of its devices are gone.
func describeState(s *v1alpha1.SlotStatus) string {
	if len(s.LostDevices) == 0 {
		return string(s.State)
	}
	return string(s.State) + ", lost " + strings.Join(s.LostDevices, " ")
}

// describeCapacity tells what a slot keeps and where it may be.
func describeCapacity(slot *v1alpha1.Slot) string {
	text := quantityList(slot.Requests)
	for _, p := range slot.HostPorts {
		text += fmt.Sprintf(", port %s/%d", p.Protocol, p.Port)
	}
	for i := range slot.Devices {
		text += ", " + describeDevices(&slot.Devices[i])
	}
	if len(slot.NodeSelector) > 0 {
		text += ", on " + labels.FormatLabels(slot.NodeSelector)
	}
	return text
}

// describeDevices tells which devices a slot keeps: "2 nvidia.com/gpu (model=L4) for claim l4-erc".
func describeDevices(d *v1alpha1.SlotDevices) string {
	text := fmt.Sprintf("%d %s", max(d.Count, 1), d.ResourceName)
	conditions := make([]string, 0, 1+len(d.MatchExpressions))
	if len(d.MatchProperties) > 0 {
		conditions = append(conditions, labels.FormatLabels(d.MatchProperties))
	}
	for _, e := range d.MatchExpressions {
		conditions = append(conditions, strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Key, e.Operator,
			strings.Join(e.Values, ","))))
	}
	if len(conditions) > 0 {
		text += " (" + strings.Join(conditions, "; ") + ")"
	}
	if len(d.ExtendedResourceNames) > 0 {
		text += " with " + strings.Join(d.ExtendedResourceNames, ", ")
	}
	if d.ClaimName != "" {
		text += " for claim " + d.ClaimName
	}
	return text
}

func (o *command) printConditions(r *v1alpha1.Reservation, now time.Time) {
	table := newTable("Type", "Status", "Since", "Reason", "Message")
	for _, c := range r.Status.Conditions {
		addRow(table, c.Type, string(c.Status), age(c.LastTransitionTime.Time, now), c.Reason, c.Message)
	}
	printSection(o.Out, "Conditions", table)
}

func (o *command) printEvents(events []corev1.Event, err error, now time.Time) {
	if err != nil {
		fmt.Fprintf(o.Out, "\nEvents:  <not known: %v>\n", err)
		return
	}
	table := newTable("Type", "Reason", "Age", "Message")
	for i := range events {
		e := &events[i]
		addRow(table, e.Type, e.Reason, age(lastSeen(e), now), strings.TrimSpace(e.Message))
	}
	printSection(o.Out, "Events", table)
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

// moment tells a time and how long ago it was.
func moment(t *metav1.Time, now time.Time) string {
	if t.IsZero() {
		return none
	}
	return fmt.Sprintf("%s (%s ago)", t.UTC().Format(time.RFC3339), age(t.Time, now))
}

func describeTTL(r *v1alpha1.Reservation) string {
	switch {
	case r.Spec.TTL == nil:
		return "the server's default"
	case r.Spec.TTL.Duration == 0:
		return "none: until deleted"
	default:
		return r.Spec.TTL.Duration.String()
	}
}

func describeExpiry(r *v1alpha1.Reservation, now time.Time) string {
	text := expires(r, now)
	if r.Status.ExpiresAt != nil && !r.Status.Phase.IsFinal() {
		text = fmt.Sprintf("%s (%s)", r.Status.ExpiresAt.UTC().Format(time.RFC3339), text)
	}
	return text
}

func describePriority(r *v1alpha1.Reservation) string {
	text := "that of its pods"
	if r.Spec.Priority != nil {
		text = strconv.Itoa(int(*r.Spec.Priority))
	}
	if r.Spec.Preemptible {
		text += ", preemptible"
	}
	return text
}

// describeConsumers tells in words which pods may use the slots.
func describeConsumers(r *v1alpha1.Reservation) string {
	c := r.Spec.Consumers
	switch {
	case c != nil && c.Index != "":
		return fmt.Sprintf("pods with the index %q", c.Index)
	case c != nil && c.Selector != nil:
		return fmt.Sprintf("pods with the labels %s", metav1.FormatLabelSelector(c.Selector))
	case c != nil && c.Controller != nil:
		return fmt.Sprintf("pods of %s/%s", c.Controller.Kind, c.Controller.Name)
	case c != nil && c.Gang != nil && c.Gang.Kind != "":
		return fmt.Sprintf("pods of the %s gang %s", c.Gang.Kind, c.Gang.Name)
	case c != nil && c.Gang != nil:
		return fmt.Sprintf("pods of the gang %s", c.Gang.Name)
	case slices.ContainsFunc(r.Spec.Slots, func(s v1alpha1.Slot) bool { return s.Pod != nil }):
		return "the pods that the slots name"
	default:
		return "no pods: the capacity is only kept free"
	}
}
