package resources

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestHostPortsOfPods(t *testing.T) {
	with := func(ports ...v1.ContainerPort) v1.Container { return v1.Container{Ports: ports} }
	side := with(v1.ContainerPort{HostPort: 3, Protocol: v1.ProtocolUDP})
	side.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
	pod := &v1.Pod{Spec: v1.PodSpec{
		Containers: []v1.Container{
			with(v1.ContainerPort{HostPort: 1}, v1.ContainerPort{ContainerPort: 9}, v1.ContainerPort{HostPort: -1}),
			with(v1.ContainerPort{HostPort: 2, HostIP: "10.0.0.1", Protocol: v1.ProtocolSCTP}),
		},
		InitContainers: []v1.Container{side, with(v1.ContainerPort{HostPort: 4})},
	}}
	want := []HostPort{
		{PortKey: PortKey{v1.ProtocolTCP, 1}, IP: "0.0.0.0"},
		{PortKey: PortKey{v1.ProtocolSCTP, 2}, IP: "10.0.0.1"},
		{PortKey: PortKey{v1.ProtocolUDP, 3}, IP: "0.0.0.0"},
	}
	req, err := ForIncomingPod(NewTable(), pod)
	require.NoError(t, err)
	assert.Equal(t, want, req.Ports)
	assert.Equal(t, want, ForBoundPod(NewTable(), pod).Ports)
	assert.False(t, req.Equal(&Request{Amounts: req.Amounts}), "ports are part of a request")

	pod.Spec.HostNetwork = true
	want = slices.Insert(want, 1, HostPort{PortKey: PortKey{v1.ProtocolTCP, 9}, IP: "0.0.0.0"})
	assert.Equal(t, want, ForBoundPod(NewTable(), pod).Ports, "on the host's network")
}
