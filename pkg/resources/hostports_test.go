package resources

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestHostPortCollisions(t *testing.T) {
	port := func(ip string, protocol v1.Protocol, number int32) HostPort {
		return HostPort{PortKey: PortKey{Protocol: protocol, Port: number}, IP: ip}
	}
	tests := map[string]struct {
		a, b HostPort
		want bool
	}{
		"the same":                      {port("10.0.0.1", "TCP", 80), port("10.0.0.1", "TCP", 80), true},
		"another address":               {port("10.0.0.1", "TCP", 80), port("10.0.0.2", "TCP", 80), false},
		"another port":                  {port("10.0.0.1", "TCP", 80), port("10.0.0.1", "TCP", 81), false},
		"another protocol":              {port("0.0.0.0", "TCP", 80), port("0.0.0.0", "UDP", 80), false},
		"all addresses and one":         {port("0.0.0.0", "TCP", 80), port("10.0.0.1", "TCP", 80), true},
		"all addresses twice":           {port("0.0.0.0", "SCTP", 80), port("0.0.0.0", "SCTP", 80), true},
		":: is one address":             {port("::", "TCP", 80), port("10.0.0.1", "TCP", 80), false},
		":: is one IPv6 address":        {port("::", "TCP", 80), port("fd00::1", "TCP", 80), false},
		":: collides with itself":       {port("::", "TCP", 80), port("::", "TCP", 80), true},
		":: collides with 0.0.0.0":      {port("::", "TCP", 80), port("0.0.0.0", "TCP", 80), true},
		"spelling of addresses matters": {port("fd00::1", "TCP", 80), port("fd00:0::1", "TCP", 80), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.want, tt.a.CollidesWith(tt.b))
			assert.Equal(t, tt.want, tt.b.CollidesWith(tt.a), "the other way round")
		})
	}
}

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
