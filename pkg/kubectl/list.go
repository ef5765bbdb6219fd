package kubectl

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

type listOptions struct {
	command
	watch    bool
	selector string
}

func newListCommand(env *environment) *cobra.Command {
	o := &listOptions{command: command{environment: env}}
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls", "get"},
		Short:   "List reservations",
		Long: `List the Reservation objects of a namespace, or of all.

EXPIRES tells how long unused capacity is still kept; CONSUMED how many slots pods use, of how many.`,
		Example: `  # The reservations of the current namespace
  kubectl reserve list

  # Those of all namespaces, with the reason of those that are not available, as they change
  kubectl reserve list -A -o wide --watch`,
		Args: takes("no arguments", cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	cmd.Flags().BoolVarP(&env.allNamespaces, "all-namespaces", "A", false, "list those of all namespaces")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "go on and print every change, until interrupted")
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "only objects with these labels, such as app=web")
	o.addOutput(cmd, outputTable, outputWide, outputYAML, outputJSON, outputName)
	return cmd
}

func (o *listOptions) run(ctx context.Context) error {
	if o.watch && !o.forPeople() {
		return usageErrorf("--watch prints tables: leave out -o %s", o.format)
	}
	namespace, err := o.namespace()
	if err != nil {
		return err
	}
	cluster, err := o.cluster()
	if err != nil {
		return err
	}
	options := metav1.ListOptions{LabelSelector: o.selector}
	list, err := cluster.reservations.GlobalreserveV1alpha1().Reservations(namespace).List(ctx, options)
	if err != nil {
		return explainAPIError("list reservations", err)
	}
	switch {
	case o.format == outputName:
		return meta.EachListItem(list, func(r runtime.Object) error { return o.printObject(r, "") })
	case !o.forPeople():
		for i := range list.Items { // a typed client leaves out what they are
			list.Items[i].SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("Reservation"))
		}
		return o.printObject(list, "")
	}
	return o.printTable(ctx, cluster, namespace, list)
}

// printTable prints what is there and, with --watch, what becomes of it.
func (o *listOptions) printTable(ctx context.Context, cluster *cluster, namespace string,
	list *v1alpha1.ReservationList,
) error {
	printer := o.tablePrinter()
	// One writer for all tables keeps the columns of later rows where the first ones are.
	writer := printers.GetNewTabWriter(o.Out)
	if err := printer.PrintObj(o.reservationTable(list.Items...), writer); err != nil {
		return err
	}
	writer.Flush()
	if o.watch {
		return o.follow(ctx, cluster, namespace, list.ResourceVersion, func(r *v1alpha1.Reservation) error {
			err := printer.PrintObj(o.reservationTable(*r), writer)
			writer.Flush()
			return err
		})
	}
	if len(list.Items) == 0 {
		where := "in any namespace"
		if !o.allNamespaces {
			where = "in namespace " + namespace
		}
		fmt.Fprintln(o.ErrOut, "There are no reservations", where+".")
	}
	return nil
}

// follow calls changed for every change of a reservation until the context ends, which is no error.
func (o *listOptions) follow(ctx context.Context, cluster *cluster, namespace, from string,
	changed func(*v1alpha1.Reservation) error,
) error {
	client := cluster.reservations.GlobalreserveV1alpha1().Reservations(namespace)
	_, err := toolswatch.Until(ctx, from, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = o.selector
			return client.Watch(ctx, options)
		},
	}, func(event watch.Event) (bool, error) {
		if r, ok := event.Object.(*v1alpha1.Reservation); ok && event.Type != watch.Bookmark {
			return false, changed(r)
		}
		if event.Type == watch.Error {
			return false, apierrors.FromObject(event.Object)
		}
		return false, nil
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // an interrupt is how a watch ends
	}
	return explainAPIError("watch reservations", err)
}

func (o *command) reservationTable(all ...v1alpha1.Reservation) *metav1.Table {
	table, now := newTable("Namespace", "Name", "Node", "Status", "Consumed", "Expires", "Age",
		"+Slots", "+Requests", "+Policy", "+Scheduler", "+Reason"), o.clock.Now()
	for i := range all {
		r, reason := &all[i], ""
		if c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionAvailable); c != nil {
			reason = c.Reason
		}
		addRow(table, r.Namespace, r.Name, orNone(r.Status.NodeName), orNone(string(r.Status.Phase)),
			cmp.Or(r.Status.Consumed, "0/"+strconv.Itoa(len(r.Spec.Slots))), expires(r, now), age(r.CreationTimestamp.Time, now),
			strconv.Itoa(len(r.Spec.Slots)), slotRequests(r), string(r.Spec.AllocatePolicy),
			orNone(r.Spec.SchedulerName), orNone(reason))
	}
	if !o.allNamespaces {
		dropColumn(table, 0)
	}
	return table
}

// slotRequests shows what the slots keep; most reservations have equal slots.
func slotRequests(r *v1alpha1.Reservation) string {
	texts := slices.Compact(namesOf(r.Spec.Slots, func(s *v1alpha1.Slot) string { return quantityList(s.Requests) }))
	if len(texts) > 1 {
		return "<several>"
	}
	return orNone(strings.Join(texts, ""))
}

// expires tells how long unused capacity is still kept.
func expires(r *v1alpha1.Reservation, now time.Time) string {
	switch {
	case r.Status.Phase.IsFinal():
		return "ended"
	case r.Status.ExpiresAt != nil:
		return until(r.Status.ExpiresAt.Time, now)
	case r.Status.Phase == v1alpha1.ReservationAvailable:
		return "never"
	default:
		return none
	}
}

// until tells a moment as "in 9m", or "now" where it has come; nothing where there is none.
func until(t, now time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case !t.After(now):
		return "now"
	default:
		return "in " + duration.HumanDuration(t.Sub(now))
	}
}

func age(since, now time.Time) string {
	if since.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(since))
}
