package sim

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// groupKind is a kind of PodGroups, which say how many pods a gang needs.
type groupKind struct {
	schema.GroupVersionResource
	join func(pod *v1.Pod, gang string, number int)
}

// taskAnnotation is on pods of Volcano's gangs.
const taskAnnotation = "volcano.sh/task-spec"

var (
	volcanoGroups = &groupKind{
		schema.GroupVersionResource{Group: "scheduling.volcano.sh", Version: "v1beta1", Resource: "podgroups"},
		func(pod *v1.Pod, gang string, number int) {
			pod.Annotations["scheduling.k8s.io/group-name"] = gang
			pod.Annotations[taskAnnotation] = []string{"actor", "learner"}[number%2]
		},
	}
	coschedulingGroups = &groupKind{
		schema.GroupVersionResource{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Resource: "podgroups"},
		func(pod *v1.Pod, gang string, _ int) { pod.Labels["scheduling.x-k8s.io/pod-group"] = gang },
	}
	// crewKinds are those of gangs, in turn: nil for those whose pods say themselves how many they need.
	crewKinds = []*groupKind{nil, volcanoGroups, coschedulingGroups, volcanoGroups}
)

// kindOf returns the kind of PodGroup of a gang, nil where it has none.
func kindOf(gang string) *groupKind {
	var number int
	if _, err := fmt.Sscanf(gang, "crew-%d", &number); err != nil {
		return nil
	}
	return crewKinds[number%len(crewKinds)]
}

// definition is the CustomResourceDefinition of the kind, without the rules of its fields.
func (k *groupKind) definition() *unstructured.Unstructured {
	anything := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": k.Resource + "." + k.Group, "annotations": map[string]any{
			"api-approved.kubernetes.io": "none: a model",
		}},
		"spec": map[string]any{
			"group": k.Group, "scope": "Namespaced",
			"names": map[string]any{"plural": k.Resource, "singular": "podgroup", "kind": "PodGroup"},
			"versions": []any{map[string]any{
				"name": k.Version, "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": anything},
			}},
		},
	}}
}

var definitions = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

// createPodGroup creates the PodGroup of a gang, if there is none. Half of those that can have tasks.
func (c *Cluster) createPodGroup(ctx context.Context, gang string) {
	kind, needed := kindOf(gang), int64(2+c.crews/2%2)
	spec := map[string]any{"minMember": needed}
	if kind == volcanoGroups && c.random.IntN(2) == 0 {
		spec["minTaskMember"] = map[string]any{"actor": needed - 1, "learner": int64(1)}
	}
	_, err := c.dynamic.Resource(kind.GroupVersionResource).Namespace("default").Create(ctx, &unstructured.Unstructured{
		Object: map[string]any{
			"apiVersion": kind.GroupVersion().String(), "kind": "PodGroup",
			"metadata": map[string]any{"name": gang, "namespace": "default"}, "spec": spec,
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) ||
		apierrors.IsForbidden(err) {
		return // or the definition is not there, or on its way out
	}
	c.must(err, "creating a PodGroup")
	c.note("user", "creates PodGroup %s: %v", gang, spec)
}

// changeDefinition has the definition of a kind of PodGroups go, with all of them, or come back.
func (c *Cluster) changeDefinition(ctx context.Context) {
	kind := []*groupKind{volcanoGroups, coschedulingGroups}[c.random.IntN(2)]
	if c.random.IntN(3) > 0 {
		c.must(c.define(ctx, kind, time.Now()), "creating a definition")
		return
	}
	name := kind.Resource + "." + kind.Group
	c.judge.define(kind, time.Time{}, false)
	c.must(c.dynamic.Resource(definitions).Delete(ctx, name, metav1.DeleteOptions{}), "deleting a definition")
	c.note("user", "deletes the definition of %s", name)
}

// define creates the definition of a kind, if there is none. since is from when on servers may hear of it.
func (c *Cluster) define(ctx context.Context, kind *groupKind, since time.Time) error {
	_, err := c.dynamic.Resource(definitions).Create(ctx, kind.definition(), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	c.note("user", "creates the definition of %s.%s", kind.Resource, kind.Group)
	c.judge.define(kind, since, true)
	return err
}

// latestCrews is of how many of the latest gangs the PodGroups change.
const latestCrews = 6

// changePodGroup has a PodGroup come, go, or need one pod more or less.
func (c *Cluster) changePodGroup(ctx context.Context) {
	gang := crewName(max(c.crews-c.random.IntN(latestCrews), 0))
	kind := kindOf(gang)
	if kind == nil {
		return
	}
	client := c.dynamic.Resource(kind.GroupVersionResource).Namespace("default")
	group, err := client.Get(ctx, gang, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		c.createPodGroup(ctx, gang)
		return
	case c.random.IntN(3) == 0:
		c.must(client.Delete(ctx, gang, metav1.DeleteOptions{}), "deleting a PodGroup")
		c.note("user", "deletes PodGroup %s", gang)
		return
	}
	c.must(err, "reading a PodGroup")
	needed, _, _ := unstructured.NestedInt64(group.Object, "spec", "minMember")
	needed = max(needed-1+2*c.random.Int64N(2), 2)
	c.must(unstructured.SetNestedField(group.Object, needed, "spec", "minMember"), "editing a PodGroup")
	_, err = client.Update(ctx, group, metav1.UpdateOptions{})
	c.must(err, "editing a PodGroup")
	c.note("user", "has PodGroup %s need %d", gang, needed)
}

// deletePodGroups deletes all of them.
func (c *Cluster) deletePodGroups(ctx context.Context) {
	for _, kind := range []*groupKind{volcanoGroups, coschedulingGroups} {
		all := c.dynamic.Resource(kind.GroupVersionResource).Namespace("default")
		c.must(all.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}), "deleting the PodGroups")
	}
}

// groupRecord is what a PodGroup says.
type groupRecord struct {
	needed, least int // now, and the least that it ever said; 0 where it is not there, or was not for a time
	tasks         map[string]int
}

// podGroup is what the judge reads of a PodGroup.
type podGroup struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		MinMember     int
		MinTaskMember map[string]int
	}
}

// observePodGroup notes how many pods a gang needs.
func (j *judge) observePodGroup(before, after *podGroup) {
	if after == nil {
		j.podGroups[before.Name].needed, j.podGroups[before.Name].least = 0, 0
		return
	}
	record := j.podGroups[after.Name]
	if record == nil {
		record = &groupRecord{least: after.Spec.MinMember}
		j.podGroups[after.Name] = record
	}
	record.needed, record.tasks = after.Spec.MinMember, after.Spec.MinTaskMember
	record.least = min(record.least, after.Spec.MinMember)
}

// define notes that the definition of a kind comes or goes.
func (j *judge) define(kind *groupKind, since time.Time, comes bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.defined[kind] = since; !comes {
		delete(j.defined, kind)
	}
}

// observeFirst looks at a pod that is bound of a gang with a PodGroup: before that exists nobody knows what it needs.
// Where there is no definition of the kind such pods are like others.
func (j *judge) observeFirst(pod *v1.Pod, name string) {
	gang := crewOf(pod)
	if gang == "" || kindOf(gang) == nil {
		return
	}
	if j.isKnown(kindOf(gang)) && j.podGroups[gang] == nil {
		j.cluster.fail("pod %s is bound, and PodGroup %s never was", name, gang)
	}
}

// isKnown reports whether every server knows the definition of a kind: it has been there for so long. Gangs without a
// PodGroup need none.
func (j *judge) isKnown(kind *groupKind) bool {
	if kind == nil {
		return true
	}
	since, defined := j.defined[kind]
	return defined && time.Since(since) > longUnknown
}
