package kubectl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/drain"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// The values of --wait-for.
const (
	waitForBound = "bound"
	waitForReady = "ready"
)

// drainRetries is how long the server is asked again that does not answer: another one may have to take over.
const drainRetries = time.Minute

type drainOptions struct {
	command
	drain.Options
	selector, dryRun, waitFor string
	undo                      bool
	timeout                   time.Duration
	grace                     int64
}

func newDrainCommand(env *environment) *cobra.Command {
	o := &drainOptions{command: command{environment: env}, dryRun: dryRunNone, waitFor: waitForBound}
	cmd := &cobra.Command{
		Use:   "drain NODE...",
		Short: "Drain nodes once each of their pods has a place elsewhere",
		Long: `Drain nodes as kubectl drain does, but keep a place on another node for each pod that is made for one that
goes, before anything is changed. Where one pod has no place the exit code is 1, and no node is cordoned.

The places are Reservations, one for each owner. Then the nodes are cordoned, and pods evicted: one owner's one after
another, as their PodDisruptionBudgets allow, each once the pod that is made for the one before is bound.

Interrupted at any time, the same command goes on where it was. --undo takes it back: the nodes are schedulable again,
and places that no pod uses are given back.`,
		Example: `  # Where would the pods go?
  kubectl reserve drain node-7 --ignore-daemonsets --dry-run=server

  # Drain two nodes together, pods of four owners at once
  kubectl reserve drain node-7 node-8 --ignore-daemonsets --parallel 4

  # Take it back
  kubectl reserve drain node-7 node-8 --undo`,
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
		ValidArgsFunction: env.completeArgs(anyNumber, listNodes),
	}
	flags := cmd.Flags()
	flags.StringVarP(&o.selector, "selector", "l", "", "drain the nodes with these labels, such as pool=a")
	addChoice(cmd, &o.dryRun, "dry-run", "", "none, or server (print where the pods would go)", dryRunNone, dryRunServer)
	flags.BoolVar(&o.undo, "undo", false, "uncordon the nodes, and give back what this drain keeps")
	flags.BoolVar(&o.Force, "force", false, "evict pods, too, that nothing is known to make again")
	flags.BoolVar(&o.IgnoreDaemonSets, "ignore-daemonsets", false, "leave the pods of DaemonSets where they are")
	flags.BoolVar(&o.DeleteEmptyDirData, "delete-emptydir-data", false, "evict pods, too, whose emptyDir is lost")
	flags.Int64Var(&o.grace, "grace-period", -1, "seconds that a pod has to end; negative: as many as it says")
	flags.StringSliceVar(&o.SkipNamespaces, "skip-namespace", nil, "leave the pods of these namespaces where they are")
	flags.IntVar(&o.AllowUnplaced, "allow-unplaced", 0, "evict pods, too, that have no place, at most so many")
	flags.IntVar(&o.Parallel, "parallel", 1, "of how many owners pods are evicted at once")
	addChoice(cmd, &o.waitFor, "wait-for", "", "wait until the pods that are made are bound, or ready", waitForBound,
		waitForReady)
	flags.DurationVar(&o.TTL, "reservation-ttl", drain.DefaultTTL, "how long places are kept once the command has ended")
	flags.DurationVar(&o.timeout, "timeout", 0, "end after this time; 0s: never")
	o.addOutput(cmd, outputTable, outputWide, outputYAML, outputJSON)
	return cmd
}

func (o *drainOptions) run(ctx context.Context, args []string) error {
	if (len(args) == 0) == (o.selector == "") {
		return usageErrorf("drain takes the names of nodes, or --selector: see kubectl reserve drain --help")
	}
	if o.format != "" && o.format != outputTable && o.dryRun == dryRunNone {
		return usageErrorf("-o %s is of the plan: give --dry-run=server, too", o.format)
	}
	if o.undo && o.dryRun != dryRunNone {
		return usageErrorf("--undo is not tried out: leave out --dry-run")
	}
	if o.Parallel < 1 || o.AllowUnplaced < 0 || o.TTL < time.Minute {
		return usageErrorf("--parallel is 1 or more, --allow-unplaced 0 or more, and --reservation-ttl 1m or more")
	}
	if o.grace >= 0 {
		o.GracePeriod = &o.grace
	}
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	d, err := o.prepare(ctx, args)
	if err != nil {
		return err
	}
	switch {
	case o.undo:
		err = d.Undo(ctx)
	case o.dryRun == dryRunServer:
		return o.preview(ctx, d)
	default:
		err = d.Run(ctx)
	}
	var unplaced *drain.UnplacedError
	if errors.As(err, &unplaced) {
		return errors.Join(o.printPlan(unplaced.Plan), err)
	}
	return o.explain(ctx, err)
}

// prepare connects to both servers, and finds the nodes.
func (o *drainOptions) prepare(ctx context.Context, args []string) (*drain.Drain, error) {
	cluster, err := o.cluster()
	if err != nil {
		return nil, err
	}
	o.retryFor = drainRetries
	if err := o.connectServer(ctx); err != nil && !o.undo {
		return nil, err
	}
	if o.selector != "" {
		list, err := cluster.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: o.selector})
		if err != nil {
			return nil, explainAPIError("list the nodes", err)
		}
		if len(list.Items) == 0 {
			return nil, fmt.Errorf("no node has the labels %s: see kubectl get nodes --show-labels", o.selector)
		}
		for i := range list.Items {
			args = append(args, list.Items[i].Name)
		}
	}
	o.Kube, o.Reservations, o.Server, o.Nodes = cluster.kube, cluster.reservations, o.server, args
	o.Out, o.ErrOut, o.UntilReady = o.environment.Out, o.environment.ErrOut, o.waitFor == waitForReady
	return drain.New(o.Options), nil
}

// explain says what to do about an error, and how to go on.
func (o *drainOptions) explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted: the same command goes on, --undo takes it back (%w)", err)
	}
	if server := o.explainServerError(err); server != err { //nolint:errorlint // it is another one, or the same
		return server
	}
	return explainAPIError("drain", err)
}

// preview prints the plan; the error says that pods have no place.
func (o *drainOptions) preview(ctx context.Context, d *drain.Drain) error {
	plan, err := d.Plan(ctx)
	if err != nil && plan == nil {
		return o.explain(ctx, err)
	}
	return errors.Join(o.printPlan(plan), err, plan.Check(o.AllowUnplaced))
}

func (o *drainOptions) printPlan(plan *drain.Plan) error {
	table := newTable("Node", "Namespace", "Pod", "Owner", "Asks", "Goes-to")
	for i := range plan.Answer.Pods {
		pod := &plan.Answer.Pods[i]
		if pod.Action == reserver.DrainStay && !o.wide() {
			continue
		}
		owner := none
		if pod.OwnerKind != "" {
			owner = pod.OwnerKind + "/" + pod.OwnerName
		}
		addRow(table, pod.Node, pod.Namespace, pod.Pod, owner, amountList(pod.Requests, o.wide()), goesTo(pod))
	}
	return o.show(plan.Answer, nil, "No pod has to go.", table)
}

// goesTo says where a pod goes, or why it has no place, and what to know about it.
func goesTo(pod *reserver.DrainPod) string {
	text := pod.To
	switch {
	case pod.Action == reserver.DrainStay:
		text = "stays: " + pod.Why
	case pod.Action == reserver.DrainEnd:
		text = "ends: " + pod.Why
	case pod.OwnerKind == "":
		text = "goes for good: " + pod.Why
	case pod.To == "":
		text = "nowhere: " + pod.Why
	case pod.Slot != "":
		text += " (kept)"
	}
	return strings.Join(append([]string{text}, pod.Warnings...), "; ")
}
