// Package placementtest has what tests ask about: nodes, requests and claims of devices.
package placementtest

import (
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// NewBuilder makes questions where there are no reservations. Every claim of devices asks for one GPU.
func NewBuilder(l *ledger.Ledger) *placement.Builder {
	return &placement.Builder{Reader: cluster.Reader{Table: l.Table()}, Matcher: &placement.Matcher{}, Devices: Claims}
}

// Nodes adds nodes with so much CPU and capacity for 110 pods to a ledger.
func Nodes(l *ledger.Ledger, milliCPU int64, names ...string) {
	nodes(l, milliCPU, nil, names)
}

func nodes(l *ledger.Ledger, milliCPU int64, dra []resources.Column, names []string) {
	for _, name := range names {
		l.ObserveNode(ledger.NodeObservation{Name: name, DRA: dra, Allocatable: []resources.Amount{
			{Column: resources.CPU, Value: milliCPU}, {Column: resources.Pods, Value: 110},
		}})
	}
}

// DRA adds nodes with so much CPU that offer none of a resource by count and have devices of DRA for it.
func DRA(l *ledger.Ledger, milliCPU int64, resource string, names ...string) {
	column, _ := l.Table().Offer(v1.ResourceName(resource))
	nodes(l, milliCPU, []resources.Column{column}, names)
}

// Plain returns nodes without labels and taints.
func Plain(names ...string) *cluster.Nodes {
	nodes := cluster.NewNodes()
	for _, name := range names {
		nodes.Put(&cluster.Node{Name: name})
	}
	return nodes
}

// Request returns what one pod asks for.
func Request(milliCPU int64) *resources.Request {
	return &resources.Request{Amounts: []resources.Amount{
		{Column: resources.CPU, Value: milliCPU}, {Column: resources.Pods, Value: 1},
	}}
}

// GPUs adds GPUs to a node. Their IDs are their names.
func GPUs(l *ledger.Ledger, node string, names ...string) {
	var list []devices.Device
	for _, name := range names {
		list = append(list, devices.Device{Name: name, Resource: gpu, ID: name})
	}
	l.ObserveDevices(node, list)
}

const gpu = "nvidia.com/gpu"

// Claims returns what the claims of a pod ask for. All claims exist except the one that is called missing.
func Claims(pod *cluster.Pod) *ledger.DeviceRequest {
	if !pod.Devices.Asks() {
		return nil
	}
	r := &ledger.DeviceRequest{Err: pod.Devices.Err, Given: pod.Devices.Given}
	for _, name := range pod.Devices.Claims {
		if name == "missing" {
			return &ledger.DeviceRequest{Err: "there is no claim missing"}
		}
		compiled, err := devices.Compile(nil, &v1alpha1.ExtendedResourceClaimSpec{ResourceName: gpu, Count: 1})
		if err != nil {
			panic(err)
		}
		r.Claims = append(r.Claims, ledger.DeviceClaimRef{Namespace: pod.Ref.Namespace, Name: name, UID: "1"})
		r.Requests = append(r.Requests, compiled)
	}
	return r
}
