package devices

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// truth is what the bound pods of the namespace say.
type truth struct {
	byDevice map[string]*corev1.Pod // by node and ID
	byClaim  map[string]*corev1.Pod
}

// requireConsistent waits until the devices, the claims and the server's own account say what the bound
// pods say.
func (c *cluster) requireConsistent() {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) { assert.Empty(t, c.differences(t)) }, "devices and claims differ from the bound pods")
}

// differences tells what differs from the bound pods.
func (c *cluster) differences(t require.TestingT) []string {
	pods := c.Pods()
	devices, err := c.Devices().List(c.T.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	claims, err := c.DeviceClaims().List(c.T.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	all := truth{byDevice: map[string]*corev1.Pod{}, byClaim: map[string]*corev1.Pod{}}
	var found []string
	for i := range pods {
		found = append(found, all.add(&pods[i])...)
	}
	for i := range pods {
		for k := range claims.Items {
			if metav1.IsControlledBy(&claims.Items[k], &pods[i]) && pods[i].Spec.NodeName != "" {
				all.byClaim[claims.Items[k].Name] = &pods[i]
			}
		}
	}
	names := map[string]string{}
	for i := range devices.Items {
		d := &devices.Items[i]
		names[d.Spec.NodeName+" "+d.Spec.DeviceID] = d.Name
		found = append(found, all.checkDevice(d)...)
	}
	for i := range claims.Items {
		found = append(found, all.checkClaim(&claims.Items[i], names)...)
	}
	return append(found, c.checkAccount(t, &all)...)
}

func (a *truth) add(pod *corev1.Pod) (found []string) {
	if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil
	}
	for _, id := range idsOf(pod) {
		key := pod.Spec.NodeName + " " + id
		if other := a.byDevice[key]; other != nil {
			found = append(found, fmt.Sprintf("%s is with %s and %s", key, other.Name, pod.Name))
		}
		a.byDevice[key] = pod
	}
	for _, name := range claimsOf(pod) {
		a.byClaim[name] = pod
	}
	return found
}

func (a *truth) checkDevice(d *v1alpha1.ExtendedResource) []string {
	pod, status := a.byDevice[d.Spec.NodeName+" "+d.Spec.DeviceID], &d.Status
	switch {
	case pod == nil && (status.Phase != v1alpha1.ExtendedResourceAvailable || status.ClaimRef != nil):
		return []string{fmt.Sprintf("no pod has device %s, which says %+v", d.Name, status)}
	case pod != nil && (status.Phase != v1alpha1.ExtendedResourceBound || (status.ClaimRef == nil) != (gpusByCount(pod) > 0)):
		return []string{fmt.Sprintf("%s has device %s, which says %+v", pod.Name, d.Name, status)}
	case pod != nil && status.ClaimRef != nil && a.byClaim[status.ClaimRef.Name] != pod:
		return []string{fmt.Sprintf("%s has device %s, which names claim %s", pod.Name, d.Name, status.ClaimRef.Name)}
	}
	return nil
}

func (a *truth) checkClaim(claim *v1alpha1.ExtendedResourceClaim, names map[string]string) []string {
	pod, status := a.byClaim[claim.Name], &claim.Status
	if pod == nil {
		if status.Phase != v1alpha1.ExtendedResourceClaimPending || status.PodRef != nil || len(status.ExtendedResources) > 0 {
			return []string{fmt.Sprintf("no pod has claim %s, which says %+v", claim.Name, status)}
		}
		return nil
	}
	if status.Phase != v1alpha1.ExtendedResourceClaimBound || status.NodeName != pod.Spec.NodeName ||
		status.PodRef == nil || status.PodRef.UID != pod.UID {
		return []string{fmt.Sprintf("%s has claim %s, which says %+v", pod.Name, claim.Name, status)}
	}
	if len(status.ExtendedResources) != int(claim.Spec.Count) {
		return []string{fmt.Sprintf("claim %s is of %d devices and has %v", claim.Name, claim.Spec.Count, status.ExtendedResources)}
	}
	var has []string
	for _, id := range idsOf(pod) {
		has = append(has, names[pod.Spec.NodeName+" "+id])
	}
	for _, name := range status.ExtendedResources {
		if !slices.Contains(has, name) {
			return []string{fmt.Sprintf("%s has %v, claim %s says %v", pod.Name, has, claim.Name, status.ExtendedResources)}
		}
	}
	return nil
}

// checkAccount compares with what the server decides by.
func (c *cluster) checkAccount(t require.TestingT, all *truth) (found []string) {
	nodes, err := c.Ledger.Nodes(c.T.Context())
	require.NoError(t, err)
	require.Empty(t, nodes.Continue)
	for i := range nodes.Nodes {
		node := &nodes.Nodes[i]
		for k := range node.Devices {
			d := &node.Devices[k]
			var holders []string
			for _, pod := range d.Pods {
				holders = append(holders, pod.Pod)
			}
			want := ""
			if pod := all.byDevice[node.Name+" "+d.ID]; pod != nil {
				want = pod.Name
			}
			if strings.Join(holders, " and ") != want || d.Free != (want == "") {
				found = append(found, fmt.Sprintf("device %s on %s is with %q, in the account with %q, free: %t", d.ID, node.Name, want, holders, d.Free))
			}
		}
	}
	return found
}
