package controlplane

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// reactionTime is what the controller manager needs to hear of the end of a workload, and to write what it meant to.
const reactionTime = 200 * time.Millisecond

// reset removes all objects that were not there earlier, when etcdKeys returned what it is given, and returns when the
// API server says that they are gone. It deletes in etcd: no finalizer, no grace period, no controller that is missing
// and no webhook whose server has ended holds it up. Who else writes objects has to be stopped first. It is an error if
// earlier objects are gone, or there are other definitions of kinds: what did that needs a control plane of its own.
func (c *ControlPlane) reset(ctx context.Context, earlier map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	removed := map[string][]string{} // names, by kind
	for {
		now, err := c.etcdKeys(ctx)
		if err != nil {
			return err
		}
		if err := c.requireKept(earlier, now); err != nil {
			return err
		}
		added := c.added(earlier, now)
		if len(added) == 0 {
			return c.awaitRemoved(ctx, removed)
		}
		if err := c.remove(ctx, added); err != nil {
			return err
		}
		for _, key := range added {
			kind, name := splitKey(key)
			removed[kind] = append(removed[kind], name)
		}
		if c.options.Workloads {
			<-time.After(reactionTime)
		}
	}
}

// requireKept fails if an object is gone, or a definition was changed or added: the API server takes its
// time to serve that, and more of it to forget it.
func (c *ControlPlane) requireKept(earlier, now map[string]string) error {
	for key, revision := range earlier {
		current, there := now[key]
		kind, name := splitKey(key)
		if !there && kind != "events" && !c.isOwn(kind, name) {
			return fmt.Errorf("%s is gone: the test needs a control plane of its own", key)
		}
		if isDefinition(key) && current != revision {
			return fmt.Errorf("%s was changed: the test needs a control plane of its own", key)
		}
	}
	for key := range now {
		if _, known := earlier[key]; isDefinition(key) && !known {
			return fmt.Errorf("%s is new: the test needs a control plane of its own", key)
		}
	}
	return nil
}

func isDefinition(key string) bool {
	return strings.HasPrefix(key, registry+"apiextensions.k8s.io/customresourcedefinitions/")
}

// added are the keys of objects that were not there earlier: workloads alone as long as there are any,
// so that nothing is made for them any more when the rest goes.
func (c *ControlPlane) added(earlier, now map[string]string) []string {
	var all, workloads []string
	for key := range now {
		kind, name := splitKey(key)
		if _, known := earlier[key]; known || c.isOwn(kind, name) {
			continue
		}
		all = append(all, key)
		if slices.Contains([]string{"deployments", "replicasets", "statefulsets", "jobs"}, kind) {
			workloads = append(workloads, key)
		}
	}
	if len(workloads) > 0 {
		return workloads
	}
	return all
}

// isOwn tells whether an object was made by the control plane for itself.
func (c *ControlPlane) isOwn(kind, name string) bool {
	switch kind {
	case "masterleases", "peerserverleases", "ranges", "ipaddresses":
		return true
	case "leases":
		return strings.HasPrefix(name, "kube-system/apiserver-")
	case "serviceaccounts":
		return c.options.Workloads && strings.HasPrefix(name, "kube-system/")
	}
	return false
}

func (c *ControlPlane) remove(ctx context.Context, keys []string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(nodeWriters)
	for _, key := range keys {
		group.Go(func() error { return c.etcdDelete(ctx, key) })
	}
	return group.Wait()
}

// splitKey returns what comes before an object's namespace and name in its key, and these. The kind
// has two parts where its group has a dot, and for services.
func splitKey(key string) (kind, name string) {
	parts := strings.SplitN(strings.TrimPrefix(key, registry), "/", 3)
	if len(parts) == 3 && (strings.Contains(parts[0], ".") || parts[0] == "services") {
		return parts[0] + "/" + parts[1], parts[2]
	}
	kind, name, _ = strings.Cut(strings.TrimPrefix(key, registry), "/")
	return kind, name
}

// awaitRemoved waits until the API server lists none of the objects, and asks no webhook any more that
// was among them. Its lists are as fresh as etcd, and what it serves later is no older.
func (c *ControlPlane) awaitRemoved(ctx context.Context, removed map[string][]string) error {
	webhooks := false
	group, listCtx := errgroup.WithContext(ctx)
	for kind, names := range removed {
		webhooks = webhooks || strings.Contains(kind, "webhook")
		resource, err := c.resourceOf(kind)
		if err != nil {
			return err
		}
		group.Go(func() error { return awaitGone(listCtx, c.dynamic.Resource(resource), names) })
	}
	if err := group.Wait(); err != nil || !webhooks {
		return err
	}
	return c.awaitNoWebhook(ctx)
}

// resourceOf finds what the API server calls the objects of a kind.
func (c *ControlPlane) resourceOf(kind string) (schema.GroupVersionResource, error) {
	group, name, divided := strings.Cut(kind, "/")
	if !divided {
		group, name = "", kind
	}
	renamed := map[string]string{"minions": "nodes", "services/specs": "services", "services/endpoints": "endpoints"}
	if other, ok := renamed[kind]; ok {
		group, name = "", other
	}
	found, err := c.mapper.ResourceFor(schema.GroupVersionResource{Group: group, Resource: name})
	if err != nil {
		return found, fmt.Errorf("the objects that etcd keeps under %s%s: %w", registry, kind, err)
	}
	return found, nil
}

// awaitGone waits until the API server lists none of the objects, given by their namespaces and names.
func awaitGone(ctx context.Context, api dynamic.ResourceInterface, names []string) error {
	return Await(ctx, "the API server has forgotten what was removed", func(ctx context.Context) error {
		list, err := api.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			name := strings.TrimPrefix(list.Items[i].GetNamespace()+"/"+list.Items[i].GetName(), "/")
			if slices.Contains(names, name) {
				return fmt.Errorf("there is %s", name)
			}
		}
		return nil
	})
}

// awaitNoWebhook waits until the API server creates and binds pods without asking anybody. It does
// neither: both are dry runs.
func (c *ControlPlane) awaitNoWebhook(ctx context.Context) error {
	pods := c.client.CoreV1().Pods(corev1.NamespaceDefault)
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	probe := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "webhook-probe"},
		Spec:       corev1.PodSpec{NodeName: "no-such-node", Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: probe.Name},
		Target:     corev1.ObjectReference{Kind: "Node", Name: probe.Spec.NodeName},
	}
	return Await(ctx, "the API server asks no webhook any more", func(ctx context.Context) error {
		if _, err := pods.Create(ctx, probe, dryRun); err != nil {
			return err
		}
		if err := pods.Bind(ctx, binding, dryRun); !apierrors.IsNotFound(err) { // there is no such pod
			return fmt.Errorf("a binding of no pod: %w", err)
		}
		return nil
	})
}
