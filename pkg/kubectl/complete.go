package kubectl

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// Completions ask the Kubernetes API and never fail loudly: where it does not answer, there is nothing
// to offer.

// maxOffered bounds the names that a completion reads.
const maxOffered = 500

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

func (e *environment) completeReservations(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	cluster, namespace := e.completionCluster()
	if cluster == nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, err := cluster.reservations.GlobalreserveV1alpha1().Reservations(namespace).List(cmd.Context(), metav1.ListOptions{Limit: maxOffered})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return offer(names, args, typed)
}

func (e *environment) completeDevices(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	cluster, _ := e.completionCluster()
	if cluster == nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, err := cluster.reservations.GlobalreserveV1alpha1().ExtendedResources().List(cmd.Context(), metav1.ListOptions{Limit: maxOffered})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return offer(names, args, typed)
}

func (e *environment) completeNodes(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	cluster, _ := e.completionCluster()
	if cluster == nil || (cmd.Name() == "nodes" && len(args) > 0) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, err := cluster.kube.CoreV1().Nodes().List(cmd.Context(), metav1.ListOptions{Limit: maxOffered})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return offer(names, nil, typed)
}

// completePendingPods offers pods without a node: they are those that need an explanation.
func (e *environment) completePendingPods(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	cluster, namespace := e.completionCluster()
	if cluster == nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, err := cluster.kube.CoreV1().Pods(namespace).List(cmd.Context(), metav1.ListOptions{
		Limit: maxOffered, FieldSelector: fields.OneTermEqualSelector("spec.nodeName", "").String(),
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for i := range list.Items {
		if list.Items[i].Spec.NodeName == "" {
			names = append(names, list.Items[i].Name)
		}
	}
	return offer(names, args, typed)
}

func (e *environment) completeNamespaces(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	cluster, _ := e.completionCluster()
	if cluster == nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, err := cluster.kube.CoreV1().Namespaces().List(cmd.Context(), metav1.ListOptions{Limit: maxOffered})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return offer(names, nil, typed)
}

// completionCluster returns nil where the kubeconfig cannot be used.
func (e *environment) completionCluster() (*cluster, string) {
	namespace, err := e.namespace()
	if err != nil {
		return nil, ""
	}
	cluster, err := e.connector.cluster()
	if err != nil {
		return nil, ""
	}
	return cluster, namespace
}

func (e *environment) completeGlobalFlags(root *cobra.Command) {
	completeBy(root, "namespace", e.completeNamespaces)
	for _, flag := range []string{"context", "cluster", "user"} {
		completeBy(root, flag, func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			return offer(e.kubeconfigNames(flag), nil, typed)
		})
	}
}

// kubeconfigNames are the names that a flag may choose from the kubeconfig.
func (e *environment) kubeconfigNames(flag string) []string {
	config, err := e.config.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil
	}
	var names []string
	switch flag {
	case "context":
		for name := range config.Contexts {
			names = append(names, name)
		}
	case "cluster":
		for name := range config.Clusters {
			names = append(names, name)
		}
	default:
		for name := range config.AuthInfos {
			names = append(names, name)
		}
	}
	return names
}

func (e *environment) completeCreate(cmd *cobra.Command) {
	completeBy(cmd, "node", e.completeNodes)
	completeFixed(cmd, "policy", "Once", "Aligned", "Restricted")
	for _, flag := range []string{"cpu", "memory", "resource", "replicas", "ttl", "index", "selector", "scheduler", "priority"} {
		completeFixed(cmd, flag)
	}
	cmd.ValidArgsFunction = cobra.NoFileCompletions
}
