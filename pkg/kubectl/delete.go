package kubectl

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

type deleteOptions struct {
	command
	all            bool
	ignoreNotFound bool
}

func newDeleteCommand(env *environment) *cobra.Command {
	o := &deleteOptions{command: command{environment: env}}
	cmd := &cobra.Command{
		Use:     "delete NAME...",
		Aliases: []string{"rm"},
		Short:   "Delete reservations and give their unused capacity back",
		Long: `Delete Reservation objects. Capacity that no pod uses is given back at once; pods that use some keep running
and keep what they use.`,
		Example: `  kubectl reserve delete web-capacity train

  # All of the namespace
  kubectl reserve delete --all`,
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
		ValidArgsFunction: env.completeArgs(anyNumber, listReservations),
	}
	cmd.Flags().BoolVar(&o.all, "all", false, "delete all reservations of the namespace")
	cmd.Flags().BoolVar(&o.ignoreNotFound, "ignore-not-found", false, "do not fail where there is none of that name")
	o.addOutput(cmd, outputName)
	return cmd
}

func (o *deleteOptions) run(ctx context.Context, names []string) error {
	switch {
	case o.all && len(names) > 0:
		return usageErrorf("--all and names exclude each other: give one of them")
	case !o.all && len(names) == 0:
		return usageErrorf(
			"kubectl reserve delete takes the names of reservations, or --all: kubectl reserve list shows them",
		)
	}
	cluster, namespace, err := o.connect()
	if err != nil {
		return err
	}
	client := cluster.reservations.GlobalreserveV1alpha1().Reservations(namespace)
	if o.all {
		list, err := client.List(ctx, metav1.ListOptions{})
		if err != nil {
			return explainAPIError("list reservations", err)
		}
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
	}
	return forEach(names, func(name string) error {
		err := client.Delete(ctx, name, metav1.DeleteOptions{})
		if o.ignoreNotFound && apierrors.IsNotFound(err) && !isMissingDefinition(err) {
			return nil
		}
		if err != nil {
			return explainAPIError(fmt.Sprintf("delete reservation %q in namespace %q", name, namespace), err)
		}
		return o.printObject(&v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{Name: name}}, "deleted")
	})
}

// forEach does the same for every name, whatever becomes of the others. Its error has the exit code of
// the first one.
func forEach(names []string, do func(name string) error) error {
	var failed []error
	for _, name := range names {
		if err := do(name); err != nil {
			failed = append(failed, err)
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return &codedError{exitCode(failed[0]), errors.Join(failed...)}
}
