package resources

import (
	"cmp"

	v1 "k8s.io/api/core/v1"
)

// anyIP is the host address that stands for all of a node's addresses.
// "::" does not: kube-scheduler treats it as one more address.
const anyIP = "0.0.0.0"

// PortKey is the part of a host port two users must share to collide at all.
type PortKey struct {
	Protocol v1.Protocol
	Port     int32
}

// HostPort is a port of the node that a pod occupies. An empty hostIP has been
// replaced by 0.0.0.0 and an empty protocol by TCP.
type HostPort struct {
	PortKey
	IP string
	// Kept says of a term that it is one of a pod that is to come; see Apart.
	Kept bool
}

// CollidesWith reports whether both ports cannot be open on one node: same protocol and port, and the same address or
// one of them 0.0.0.0. Source: k8s.io/kube-scheduler framework.HostPortInfo.CheckConflict. Two terms collide where they
// are the same and one of them is kept.
func (p HostPort) CollidesWith(other HostPort) bool {
	if p.IsTerm() && !p.Kept && !other.Kept {
		return false
	}
	return p.PortKey == other.PortKey && (p.IP == other.IP || p.IP == anyIP || other.IP == anyIP)
}

// hostPorts lists the host ports of a pod: those of its containers and of its restartable init containers (sidecars),
// which run next to them. On the host's network a port is the host port, too, before the API server says so. Sources:
// kubernetes pkg/scheduler/util.GetHostPorts, pkg/apis/core/v1 defaultHostNetworkPorts.
func hostPorts(pod *v1.Pod) []HostPort {
	var ports []HostPort
	for i := range pod.Spec.Containers {
		ports = appendHostPorts(ports, &pod.Spec.Containers[i], pod.Spec.HostNetwork)
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			ports = appendHostPorts(ports, c, pod.Spec.HostNetwork)
		}
	}
	return ports
}

func appendHostPorts(ports []HostPort, c *v1.Container, hostNetwork bool) []HostPort {
	for i := range c.Ports {
		p := &c.Ports[i]
		port := p.HostPort
		if hostNetwork && port == 0 {
			port = p.ContainerPort
		}
		if port <= 0 {
			continue
		}
		hp := HostPort{PortKey: PortKey{Protocol: p.Protocol, Port: port}, IP: p.HostIP}
		ports = append(ports, hp.withDefaults())
	}
	return ports
}

// withDefaults replaces what is empty: every address, and TCP.
func (p HostPort) withDefaults() HostPort {
	p.IP = cmp.Or(p.IP, anyIP)
	p.Protocol = cmp.Or(p.Protocol, v1.ProtocolTCP)
	return p
}
