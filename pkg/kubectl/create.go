package kubectl

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// The values of --dry-run.
const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
)

// createOptions are the flags of create.
type createOptions struct {
	command
	spec   specFlags
	wait   time.Duration
	dryRun string
}

func newCreateCommand(env *environment) *cobra.Command {
	o := &createOptions{command: command{environment: env}, dryRun: dryRunNone, spec: specFlags{replicas: 1}}
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Reserve capacity on one or several nodes",
		Long: `Create a Reservation: capacity for one pod (or, with --replicas, for several) that no scheduler gives to
another pod. All of it becomes available together or none of it. Without --node the server chooses the
nodes, by best fit.

Which pods may use the capacity is said by --index, --selector, --controller or --gang; they are of the same
namespace always. Without any of them no pod may: the capacity is only kept free.`,
		Example: `  # Capacity for three pods of the Deployment "web", for ten minutes
  kubectl reserve create web-capacity --cpu 500m --memory 1Gi --replicas 3 --controller Deployment/web --ttl 10m

  # Two GPUs on a certain node until the reservation is deleted; wait until they are held
  kubectl reserve create train --cpu 8 --resource nvidia.com/gpu=2 --node gpu-1 --ttl 0s --index train --wait=2m

  # See the object that would be created
  kubectl reserve create buffer --cpu 2 --memory 4Gi --replicas 5 --preemptible --dry-run=client -o yaml`,
		Args:              takes("exactly one NAME", cobra.ExactArgs(1)),
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	o.spec.addFlags(cmd)
	cmd.Flags().DurationVar(&o.wait, "wait", 0, "wait until the capacity is available, for at most so long: --wait=2m")
	cmd.Flags().Lookup("wait").NoOptDefVal = defaultWait.String()
	addChoice(cmd, &o.dryRun, "dry-run", "",
		"none, client (only print the object) or server (let the API server check it, too)",
		dryRunNone, dryRunClient, dryRunServer)
	o.addOutput(cmd, outputYAML, outputJSON, outputName)
	completeBy(cmd, "node", env.completeNames(listNodes))
	return cmd
}

func (o *createOptions) run(ctx context.Context, name string) error {
	if o.wait < 0 {
		return usageErrorf("--wait %s is negative: give one such as 2m", o.wait)
	}
	if o.dryRun != dryRunNone && o.wait > 0 {
		return usageErrorf("--wait makes no sense with --dry-run=%s: nothing is created; leave one of them out", o.dryRun)
	}
	namespace, err := o.namespace()
	if err != nil {
		return err
	}
	reservation, err := o.spec.reservation(namespace, name)
	if err != nil {
		return err
	}
	done := "created"
	switch o.dryRun {
	case dryRunClient:
		return o.print(reservation, done+" (dry run)")
	case dryRunServer:
		done += " (server dry run)"
	}
	cluster, err := o.cluster()
	if err != nil {
		return err
	}
	options := metav1.CreateOptions{FieldManager: "kubectl-reserve", FieldValidation: metav1.FieldValidationStrict}
	if o.dryRun == dryRunServer {
		options.DryRun = []string{metav1.DryRunAll}
	}
	created, err := cluster.reservations.GlobalreserveV1alpha1().Reservations(namespace).Create(ctx, reservation, options)
	if err != nil {
		return explainAPIError(fmt.Sprintf("create reservation %q", name), err)
	}
	if o.wait == 0 {
		return o.print(created, done)
	}
	if o.format == "" {
		_ = o.print(created, done)
	}
	available, err := awaitAvailable(ctx, cluster, namespace, name, o.wait)
	if err != nil {
		return err
	}
	return o.print(available, "available on "+orNone(available.Status.NodeName))
}

// print prints a Reservation, or without -o its name and what was done to it, such as "created".
func (o *createOptions) print(r *v1alpha1.Reservation, done string) error {
	r.TypeMeta, r.ManagedFields = o.spec.object.TypeMeta, nil
	name := "reservation." + v1alpha1.GroupName + "/" + r.Name
	if o.format == "" {
		_, err := fmt.Fprintln(o.Out, name, oneLine(done))
		return err
	}
	return o.show(r, []string{name}, "")
}

// defaultWait is what --wait without a time means.
const defaultWait = time.Minute

// waitPoll is how often a reservation that is waited for is looked at. Polling needs no right but get.
const waitPoll = 250 * time.Millisecond

// awaitAvailable waits until a reservation holds its capacity. Its errors say what it was waiting for last.
func awaitAvailable(ctx context.Context, cluster *cluster, namespace, name string,
	timeout time.Duration,
) (*v1alpha1.Reservation, error) {
	var last *v1alpha1.Reservation
	err := wait.PollUntilContextTimeout(ctx, waitPoll, timeout, true, func(ctx context.Context) (bool, error) {
		current, err := cluster.reservations.GlobalreserveV1alpha1().Reservations(namespace).
			Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			// An answer that comes too late is not the API's fault.
			if ctx.Err() != nil {
				return false, nil //nolint:nilerr // the poll ends with the context's own error
			}
			return false, err
		}
		last = current
		phase := current.Status.Phase
		return phase == v1alpha1.ReservationAvailable || phase.IsFinal(), nil
	})
	switch {
	case err == nil && (last.Status.Phase == v1alpha1.ReservationAvailable ||
		last.Status.Phase == v1alpha1.ReservationSucceeded):
		return last, nil // one for pods that wait already may be consumed before anybody looks
	case err == nil:
		err = fmt.Errorf("reservation %q has ended: %s", name, situation(last))
	case apierrors.IsNotFound(err):
		err = fmt.Errorf("reservation %q was deleted while it was waited for", name)
	case wait.Interrupted(err): // by Ctrl-C, too
		err = fmt.Errorf("reservation %q is not available yet: %s: it stays and may become available later; remove it with "+
			"kubectl delete rsv %s -n %s", name, situation(last), name, namespace)
	default:
		return nil, explainAPIError(fmt.Sprintf("wait for reservation %q", name), err)
	}
	return nil, &codedError{exitNotAvailable, err}
}

// situation says in words where a reservation stands.
func situation(r *v1alpha1.Reservation) string {
	if r == nil || r.Status.Phase == "" {
		return "the GlobalReserve server has not looked at it yet (is it running, with Reservations enabled?)"
	}
	condition := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionAvailable)
	if condition == nil || condition.Message == "" {
		return string(r.Status.Phase)
	}
	return fmt.Sprintf("%s: %s", r.Status.Phase, oneLine(condition.Message))
}
