package kubectl

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

const gi = 1 << 30

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

func amounts(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
	}
}

func condition(status metav1.ConditionStatus, reason, message string) []metav1.Condition {
	return []metav1.Condition{{
		Type: v1alpha1.ConditionAvailable, Status: status, Reason: reason, Message: message,
		LastTransitionTime: ago(time.Minute),
	}}
}

// fresh is a Reservation.
func fresh() *v1alpha1.Reservation {
	return &v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "fresh", CreationTimestamp: ago(0)},
		Spec: v1alpha1.ReservationSpec{
			AllocatePolicy: v1alpha1.AllocateOnce, Slots: []v1alpha1.Slot{{
				Name: "fresh-0", Requests: amounts("1", "1Gi"), Pod: &v1alpha1.PodReference{Name: "web-7"},
			}},
		},
	}
}

func nodeAccounts() []reserver.Node {
	return []reserver.Node{
		{
			Name: "gpu-1", Exists: true, Overcommitted: true, AllocationCount: 3,
			Resources: map[string]reserver.NodeAmount{
				"cpu":               {Allocatable: 4000, Bound: 4500, Free: -500},
				"memory":            {Allocatable: 16 * gi, Bound: 4 * gi, Reserved: 4 * gi, Free: 8 * gi},
				"nvidia.com/gpu":    {Allocatable: 8, Reserved: 8},
				"example.com/fpga":  {},
				"hugepages-2Mi":     {Allocatable: gi, Bound: 512 << 20, Free: 512 << 20},
				"pods":              {Allocatable: 110, Bound: 3, Free: 107},
				"ephemeral-storage": {Allocatable: 100 * gi, Free: 100 * gi},
			},
		},
		{
			Name: "node-1", Exists: true, Unschedulable: true, Overcommitted: true, AllocationCount: 2,
			Resources: map[string]reserver.NodeAmount{
				"cpu":    {Allocatable: 8000, Bound: 10, Reserved: 3990, Free: 4000},
				"memory": {Allocatable: 33567899648, Bound: 33567899647, Free: 1},
				"pods":   {Allocatable: 1, Bound: 2, Free: -1},
			},
			Devices: []reserver.NodeDevice{
				{
					Device: reserver.Device{
						Name: "gpu-a", Resource: "nvidia.com/gpu", ID: "GPU-a",
						Properties: map[string]string{"model": "K80"},
					},
					Pods: []reserver.PodName{{Namespace: "default", Pod: "web-0"}},
				},
				{Device: reserver.Device{Name: "gpu-b", Resource: "nvidia.com/gpu", ID: "GPU-b"}, Reservation: "batch/train/chief"},
				{Device: reserver.Device{Name: "nic-0", Resource: "intel.com/nic", ID: "eth1"}, Free: true},
			},
		},
		{
			Name: "node-2", Overcommitted: true, AllocationCount: 1,
			Resources: map[string]reserver.NodeAmount{
				"cpu": {Bound: 250, Free: -250}, "memory": {},
			},
		},
	}
}

func draDevices() []reserver.DRADevice {
	claim := func(name string, pods ...string) reserver.DRAClaim {
		return reserver.DRAClaim{Namespace: "batch", Claim: name, State: "Allocated", Pods: pods}
	}
	return []reserver.DRADevice{
		{Driver: "gpu.example.com", Pool: "node-1", Name: "gpu-0"},
		{
			Driver: "gpu.example.com", Pool: "node-1", Name: "gpu-1",
			Claims: []reserver.DRAClaim{claim("train-0", "train-0"), {State: "Granted"}},
		},
		{
			Driver: "gpu.example.com", Pool: "node-1", Name: "gpu-2", Double: true,
			Claims: []reserver.DRAClaim{claim("train-1", "train-1", "train-2"), claim("train-3")},
		},
	}
}

func allocations() []reserver.Allocation {
	return []reserver.Allocation{
		{
			Namespace: "default", Pod: "web-0", UID: "u0", Node: "node-1", State: "Bound", Scheduler: "default-scheduler",
			Requests: reserver.Amounts{"cpu": 250, "memory": 64 << 20, "pods": 1}, HostPorts: []string{"TCP/0.0.0.0:80"},
			Reservation: "default/web-capacity/web-capacity-0",
		},
		{
			Namespace: "default", Pod: "worker-1", UID: "u2", Node: "node-1", State: "Binding", Scheduler: "batch-scheduler",
			Requests: reserver.Amounts{"cpu": 2000, "memory": 4 * gi, "pods": 1},
		},
		{
			Namespace: "default", Pod: "by-hand", UID: "u3", Node: "node-1", State: "Bound",
			Requests: reserver.Amounts{"pods": 1},
		},
	}
}

// inMemory is the answer to /v1/reservations: what the server's memory keeps for a pod, and a slot that pods use.
func inMemory() reserver.ReservationsAnswer {
	return reserver.ReservationsAnswer{Revision: 76, Reservations: []reserver.Reservation{
		{Namespace: "default", Scheduler: "batch-scheduler", Priority: 7, Policy: "Once", Slots: []reserver.Slot{{
			Pod: "worker-0", UID: "u1", Node: "gpu-1", ExpiresAt: now.Add(45 * time.Second),
			Requests: reserver.Amounts{"cpu": 2000, "memory": 4 * gi, "nvidia.com/gpu": 8, "pods": 1},
		}}},
		{
			Namespace: "default", Name: "web-capacity", Durable: true, Policy: "Aligned",
			Slots: []reserver.Slot{slots()[0].Slot},
		},
		{Namespace: "default", Name: "drain-1-web-x", Durable: true, Policy: "Once", Slots: []reserver.Slot{{Node: "gpu-1"}}},
		{
			Namespace: "default", Name: "large", Scheduler: "batch-scheduler", Durable: true, Policy: "Once",
			Slots: []reserver.Slot{}, Pending: &reserver.PendingReservation{SlotCount: 3, Message: "no node fits slot large-0"},
		},
	}, Drains: []reserver.Drain{{Name: "drain-1", Nodes: []string{"node-1", "node-2"}, Owners: []reserver.DrainOwner{
		{
			Namespace: "default", Reservation: "drain-1-web-x", Owner: "Deployment/web", Done: 4, Left: 2,
			WaitsFor: "pod/default/web-1 has to wait: the budget\nneeds 5",
		},
		{Namespace: "default", Reservation: "drain-1-job-x", Done: 1},
	}}, {Name: "drain-2", Nodes: []string{"node-3"}, Owners: []reserver.DrainOwner{
		{Namespace: "default", Reservation: "drain-2-db-x", Owner: "StatefulSet/db", Left: 1},
	}}}}
}

func slots() []reserver.NodeSlot {
	return []reserver.NodeSlot{
		{
			Namespace: "default", Reservation: "web-capacity", Priority: 100, Preemptible: true, Policy: "Aligned",
			Slot: reserver.Slot{
				Name: "web-capacity-0", Node: "node-1", Requests: reserver.Amounts{"cpu": 1500, "memory": 2 * gi, "pods": 1},
				Free: reserver.Amounts{"cpu": 1250, "memory": 2*gi - 64<<20}, HostPorts: []string{"TCP/0.0.0.0:80"},
				ExpiresAt: now.Add(9 * time.Minute),
				Consumers: []reserver.Consumer{{Pod: "web-0", State: "Bound"}, {Pod: "web-1", State: "Binding"}},
			},
		},
		{Namespace: "batch", Reservation: "train", Policy: "Once", Slot: reserver.Slot{
			Name: "chief", Node: "node-1", Requests: reserver.Amounts{"cpu": 2490}, Free: reserver.Amounts{"cpu": 2490},
		}},
	}
}

// pendingPod is the answer to explain of a pod that fits nowhere.
func pendingPod() reserver.ExplainAnswer {
	return reserver.ExplainAnswer{
		Namespace: "default", Pod: "web-1", UID: "u9", Scheduler: "default-scheduler", State: "Pending",
		Requests: reserver.Amounts{"cpu": 2500, "memory": gi, "pods": 1}, Revision: 77, NodeCount: 12,
		Message: "there is no capacity for the pod on any of 12 nodes; on the closest, too little cpu",
		Refusals: []reserver.RefusalGroup{
			{Reason: "InsufficientResource", Resource: "cpu", Nodes: 10, Examples: []string{"node-1", "node-2", "node-3"}},
			{Reason: "NodeGone", Nodes: 2, Examples: []string{"node-8", "node-9"}},
		},
		Closest: &reserver.ClosestNode{
			Node: "node-3", Missing: []reserver.MissingAmount{{Resource: "cpu", Requested: 2500, Free: 2000, Missing: 500}},
			Holders: []reserver.Holder{
				{Namespace: "batch", Pod: "worker-7", Scheduler: "batch-scheduler", State: "Reserved", Amount: 1500},
				{Namespace: "default", Reservation: "default/web-capacity/web-capacity-1", State: "Reserved", Amount: 1000},
				{Namespace: "default", Pod: "by-hand", State: "Bound", Amount: 500},
			},
		},
	}
}

// gangsInTests are one that is whole, one that starts, one that is short, one that waits and one that nobody knows.
func gangsInTests() []reserver.Gang {
	return []reserver.Gang{
		{
			Namespace: "batch", Name: "done", Kind: "kubernetes", Scheduler: "default-scheduler", Minimum: 8, Bound: 7,
			Finished: 1, State: "Whole",
		},
		{
			Namespace: "default", Name: "train", Kind: "volcano", Scheduler: "volcano", Minimum: 3, Pending: 2, Kept: 2,
			Bound: 1, State: "Starting",
			HalfSince: now.Add(-3 * time.Second), KeptUntil: now.Add(57 * time.Second),
		},
		{
			Namespace: "default", Name: "short", Kind: "globalreserve", Scheduler: "batch-scheduler", Minimum: 3, Pending: 2,
			Bound: 1, State: "Short",
			HalfSince: now.Add(-5 * time.Minute), WaitingSince: now.Add(-time.Minute),
			Why: "it has started and lacks 2 of the 3 pods it needs",
		},
		{
			Namespace: "default", Name: "waits", Kind: "volcano", Scheduler: "volcano", Minimum: 40, Pending: 40,
			State:        "Waiting",
			WaitingSince: now.Add(-2 * time.Minute), Why: "there is no capacity for the 39 others",
		},
		{
			Namespace: "default", Name: "wrong", Kind: "volcano", Pending: 1, State: "Incomplete",
			Why: "its PodGroup does not exist",
		},
	}
}

// memberOfGang is a pod that waits for its gang.
func memberOfGang() reserver.ExplainAnswer {
	gang := gangsInTests()[3]
	return reserver.ExplainAnswer{
		Namespace: "default", Pod: "train-1", Scheduler: "volcano", State: "Pending", Requests: reserver.Amounts{"cpu": 1000},
		NodeCount: 2, FitCount: 1, FitExamples: []string{"node-1"}, Message: gang.Why, Gang: &gang,
	}
}

// device is one GPU, or what else its resource says.
func device(name, node, id string, change func(*v1alpha1.ExtendedResource)) *v1alpha1.ExtendedResource {
	d := &v1alpha1.ExtendedResource{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-" + types.UID(name), CreationTimestamp: ago(2 * time.Hour)},
		Spec:       v1alpha1.ExtendedResourceSpec{NodeName: node, ResourceName: "nvidia.com/gpu", DeviceID: id},
		Status: v1alpha1.ExtendedResourceStatus{
			Phase:      v1alpha1.ExtendedResourceAvailable,
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionOnline, Status: metav1.ConditionTrue, Reason: "NodeExists"}},
		},
	}
	if change != nil {
		change(d)
	}
	return d
}

// devicesInTests are four devices and the claim that has one of them.
func devicesInTests() []runtime.Object {
	return []runtime.Object{
		device("gpu-b", "node-1", "GPU-b", func(d *v1alpha1.ExtendedResource) { d.Spec.Unschedulable = true }),
		device("gpu-a", "node-1", "GPU-a", func(d *v1alpha1.ExtendedResource) {
			d.Spec.Properties = map[string]string{"model": "K80", "memory": "12Gi"}
			d.Status.Phase = v1alpha1.ExtendedResourceBound
			d.Status.ClaimRef = &v1alpha1.ExtendedResourceClaimReference{Namespace: "default", Name: "k80-erc"}
		}),
		device("nic-a", "node-2", "0000:3b:00.0",
			func(d *v1alpha1.ExtendedResource) { d.Spec.ResourceName = "intel.com/nic" }),
		device("gpu-c", "node-3", "GPU-c", func(d *v1alpha1.ExtendedResource) {
			d.Status.Phase = v1alpha1.ExtendedResourceOffline
			d.Status.Conditions[0].Status, d.Status.Conditions[0].Reason = metav1.ConditionFalse, "NodeGone"
		}),
		device("gpu-d", "node-3", "GPU-d",
			func(d *v1alpha1.ExtendedResource) { d.Status = v1alpha1.ExtendedResourceStatus{} }),
		&v1alpha1.ExtendedResourceClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: "k80-erc",
				Annotations: map[string]string{v1alpha1.ClaimTemplateAnnotation: "one-k80"},
			},
			Status: v1alpha1.ExtendedResourceClaimStatus{
				Phase: v1alpha1.ExtendedResourceClaimBound, PodRef: &v1alpha1.PodReference{Name: "trainer"},
			},
		},
	}
}
