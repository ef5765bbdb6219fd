package kubectl

import (
	"context"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Completions ask the Kubernetes API and never fail loudly: where it does not answer, there is nothing to offer.

// maxOffered bounds the names that a completion reads.
const maxOffered = 500

// anyNumber is how many names commands take that do not count them.
const anyNumber = math.MaxInt

type completion = func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective)

// completeBy completes a flag. Its error is for flags that do not exist; commands name their own.
func completeBy(cmd *cobra.Command, flag string, by completion) {
	if err := cmd.RegisterFlagCompletionFunc(flag, by); err != nil {
		panic(err)
	}
}

func completeFixed(cmd *cobra.Command, flag string, values ...string) {
	completeBy(cmd, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// offer filters names by what is typed, and leaves out those that are on the command line already.
func offer(names, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	names = slices.DeleteFunc(names, func(name string) bool {
		return !strings.HasPrefix(name, typed) || slices.Contains(args, name)
	})
	slices.Sort(names)
	return names, cobra.ShellCompDirectiveNoFileComp
}

// lister lists the objects whose names are offered.
type lister func(ctx context.Context, cluster *cluster, namespace string) (runtime.Object, error)

var some = metav1.ListOptions{Limit: maxOffered}

func listDevices(ctx context.Context, cluster *cluster, _ string) (runtime.Object, error) {
	return cluster.reservations.GlobalreserveV1alpha1().ExtendedResources().List(ctx, some)
}

func listNodes(ctx context.Context, cluster *cluster, _ string) (runtime.Object, error) {
	return cluster.kube.CoreV1().Nodes().List(ctx, some)
}

func listNamespaces(ctx context.Context, cluster *cluster, _ string) (runtime.Object, error) {
	return cluster.kube.CoreV1().Namespaces().List(ctx, some)
}

// listPendingPods lists pods without a node: they are those that need an explanation.
func listPendingPods(ctx context.Context, cluster *cluster, namespace string) (runtime.Object, error) {
	return cluster.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{
		Limit:         maxOffered,
		FieldSelector: "spec.nodeName=",
	})
}

// completeNames offers the names of objects to a flag.
func (e *environment) completeNames(list lister) completion {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return offer(e.names(cmd.Context(), list), nil, typed)
	}
}

// completeArgs offers them as arguments, of which a command takes at most so many.
func (e *environment) completeArgs(most int, list lister) completion {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return offer(e.names(cmd.Context(), list), args, typed)
	}
}

func (e *environment) names(ctx context.Context, list lister) []string {
	namespace, err := e.namespace()
	if err != nil {
		return nil
	}
	cluster, err := e.cluster()
	if err != nil {
		return nil
	}
	objects, err := list(ctx, cluster, namespace)
	if err != nil {
		return nil
	}
	var names []string
	// Items of typed lists have names.
	_ = meta.EachListItem(objects, func(item runtime.Object) error {
		names = append(names, item.(metav1.Object).GetName())
		return nil
	})
	return names
}

func (e *environment) completeGlobalFlags(root *cobra.Command) {
	completeBy(root, "namespace", e.completeNames(listNamespaces))
	for _, flag := range []string{"context", "cluster", "user"} {
		completeBy(root, flag, func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			config, err := e.config.ToRawKubeConfigLoader().RawConfig()
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			names := map[string]iter.Seq[string]{
				"context": maps.Keys(config.Contexts), "cluster": maps.Keys(config.Clusters), "user": maps.Keys(config.AuthInfos),
			}
			return offer(slices.Collect(names[flag]), nil, typed)
		})
	}
}
