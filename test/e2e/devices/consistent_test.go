//go:build e2e

package devices

import (
	"slices"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// requireConsistent waits until the devices, the claims and the server's own account say what the bound
// pods say.
func (c *cluster) requireConsistent() {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		ofDevice, ofClaim, byCount := c.holders(t)
		c.assertDevices(t, ofDevice, ofClaim, byCount)
		c.assertClaims(t, ofDevice, ofClaim)
		c.assertAccount(t, ofDevice)
	}, "devices and claims differ from the bound pods")
}

// holders are the names of the bound pods that have devices, by node and ID, and claims, and those that asked by count.
func (c *cluster) holders(t require.TestingT) (ofDevice, ofClaim map[string]string, byCount map[string]bool) {
	ofDevice, ofClaim, byCount = map[string]string{}, map[string]string{}, map[string]bool{}
	claims, err := c.DeviceClaims().List(c.T.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	pods := c.boundPods()
	for i := range pods {
		pod := &pods[i]
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		byCount[pod.Name] = gpusByCount(pod) > 0
		for _, id := range idsOf(pod) {
			key := pod.Spec.NodeName + " " + id
			require.NotContains(t, ofDevice, key)
			ofDevice[key] = pod.Name
		}
		for _, claim := range claimsOf(pod) {
			ofClaim[claim] = pod.Name
		}
		for k := range claims.Items { // from templates
			if metav1.IsControlledBy(&claims.Items[k], pod) {
				ofClaim[claims.Items[k].Name] = pod.Name
			}
		}
	}
	return ofDevice, ofClaim, byCount
}

// assertDevices checks that each device is free, or names a claim of the pod that has it, if that has claims.
func (c *cluster) assertDevices(t require.TestingT, ofDevice, ofClaim map[string]string, byCount map[string]bool) {
	devices, err := c.Devices().List(c.T.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range devices.Items {
		d := &devices.Items[i]
		pod, has := ofDevice[d.Spec.NodeName+" "+d.Spec.DeviceID]
		if !has {
			assert.Equal(t, v1alpha1.ExtendedResourceAvailable, d.Status.Phase, d.Name)
			assert.Nil(t, d.Status.ClaimRef, d.Name)
			continue
		}
		assert.Equal(t, v1alpha1.ExtendedResourceBound, d.Status.Phase, d.Name)
		if byCount[pod] {
			assert.Nil(t, d.Status.ClaimRef, d.Name)
		} else if assert.NotNil(t, d.Status.ClaimRef, d.Name) {
			assert.Equal(t, pod, ofClaim[d.Status.ClaimRef.Name], d.Name)
		}
	}
}

// assertClaims checks that each claim is free or names its pod, and as many devices of this pod as it asks for.
func (c *cluster) assertClaims(t require.TestingT, ofDevice, ofClaim map[string]string) {
	claims, err := c.DeviceClaims().List(c.T.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range claims.Items {
		claim, status := &claims.Items[i], &claims.Items[i].Status
		pod, has := ofClaim[claim.Name]
		if !has {
			assert.Equal(t, v1alpha1.ExtendedResourceClaimPending, status.Phase, claim.Name)
			assert.Nil(t, status.PodRef, claim.Name)
			assert.Empty(t, status.ExtendedResources, claim.Name)
			continue
		}
		assert.Equal(t, v1alpha1.ExtendedResourceClaimBound, status.Phase, claim.Name)
		if assert.NotNil(t, status.PodRef, claim.Name) {
			assert.Equal(t, pod, status.PodRef.Name, claim.Name)
		}
		var holders []string
		for _, name := range status.ExtendedResources {
			device, err := c.Devices().Get(c.T.Context(), name, metav1.GetOptions{})
			require.NoError(t, err)
			holders = append(holders, ofDevice[status.NodeName+" "+device.Spec.DeviceID])
		}
		assert.Equal(t, slices.Repeat([]string{pod}, int(claim.Spec.Count)), holders, claim.Name)
	}
}

// assertAccount compares with what the server decides by.
func (c *cluster) assertAccount(t require.TestingT, ofDevice map[string]string) {
	answer, err := c.Ledger.Nodes(c.T.Context())
	require.NoError(t, err)
	require.Empty(t, answer.Continue)
	for i := range answer.Nodes {
		node := &answer.Nodes[i]
		for k := range node.Devices {
			d := &node.Devices[k]
			var holders []string
			for _, pod := range d.Pods {
				holders = append(holders, pod.Pod)
			}
			want := ofDevice[node.Name+" "+d.ID]
			assert.Equal(t, want, strings.Join(holders, " and "), "device %s on %s", d.ID, node.Name)
			assert.Equal(t, want == "", d.Free, "device %s on %s", d.ID, node.Name)
		}
	}
}
