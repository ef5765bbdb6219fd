package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strconv"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const nodeWriters = 16

// NodeTemplate describes fake nodes. The zero value is a ready node with 4 CPUs, 16 GiB of memory
// and capacity for 110 pods.
type NodeTemplate struct {
	// Prefix and the node's number make its name: node-0, node-1 ... by default.
	Prefix string
	// Allocatable becomes status.allocatable and status.capacity. Pods default to 110.
	Allocatable corev1.ResourceList
	// Labels are added to kubernetes.io/hostname.
	Labels map[string]string
}

// CreateNodes makes n fake nodes and returns their names. Each takes one request: the API server
// accepts a new node's status with the node, as a kubelet registers itself, so that no scheduler
// ever sees a node without its allocatable. A name that is taken is an error.
func (c *ControlPlane) CreateNodes(ctx context.Context, n int, template NodeTemplate) ([]string, error) {
	names := make([]string, n)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(nodeWriters)
	for i := range n {
		node := template.node(i)
		names[i] = node.Name
		group.Go(func() error {
			if _, err := c.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("create node %s: %w", node.Name, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return names, nil
}

func (t NodeTemplate) node(i int) *corev1.Node {
	name := cmp.Or(t.Prefix, "node-") + strconv.Itoa(i)
	labels := map[string]string{corev1.LabelHostname: name}
	maps.Copy(labels, t.Labels)
	allocatable := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110")}
	if t.Allocatable == nil {
		allocatable[corev1.ResourceCPU] = resource.MustParse("4")
		allocatable[corev1.ResourceMemory] = resource.MustParse("16Gi")
	}
	maps.Copy(allocatable, t.Allocatable)
	now := metav1.Now()
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Status: corev1.NodeStatus{
			Capacity: allocatable, Allocatable: allocatable,
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}},
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
				LastHeartbeatTime: now, LastTransitionTime: now,
			}},
		},
	}
}

// CreateNamespace makes a namespace and returns when pods can be created in it.
func (c *ControlPlane) CreateNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := c.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	return c.awaitNamespace(ctx, name)
}

// awaitNamespace waits for the namespace and, where pods need one, its default service account.
func (c *ControlPlane) awaitNamespace(ctx context.Context, name string) error {
	return Await(ctx, "namespace "+name+" can be used", func(ctx context.Context) error {
		_, err := c.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err == nil && c.options.Workloads {
			_, err = c.client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		}
		return err
	})
}
