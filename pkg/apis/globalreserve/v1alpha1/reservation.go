package v1alpha1

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// MaxSlots is the most slots of one Reservation. An object is one value in etcd, which takes at
	// most 1.5 MiB; this many slots, with names as long as a label allows and all of them consumed,
	// stay below it. The status lists no more pods than this.
	MaxSlots = 1000

	// MaxTTL is the longest TTL, ten years: beyond it, it is a mistake.
	MaxTTL = 87600 * time.Hour
)

// Reservation keeps capacity on nodes for pods that are not there yet. No scheduler that asks
// GlobalReserve gives that capacity to another pod.
//
// One Reservation may keep several slots on several nodes. Its slots become available together or
// not at all, so that one object commits a whole gang.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=rsv
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="NodeName",type=string,JSONPath=`.status.nodeName`,description="The node with the capacity, and how many more"
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.phase`,description="The phase of the reservation"
// +kubebuilder:printcolumn:name="Consumed",type=string,JSONPath=`.status.consumed`,description="Slots that pods use, of all slots"
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.status.expiresAt`,description="When unused capacity is given back"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Available")].reason`,description="Why the capacity is or is not available"
// +kubebuilder:printcolumn:name="Scheduler",type=string,priority=1,JSONPath=`.spec.schedulerName`,description="The scheduler the capacity is counted for"
type Reservation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is to be reserved, and for whom. After creation only its ttl may change.
	Spec ReservationSpec `json:"spec"`

	// Status is what the server made of it. The server alone writes it.
	Status ReservationStatus `json:"status,omitempty"`
}

// ReservationList is a list of Reservations.
//
// +kubebuilder:object:root=true
type ReservationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Reservation `json:"items"`
}

// ReservationSpec says what is to be reserved, for whom and for how long.
//
// All of it but the ttl is fixed at creation: what was promised is not changed behind the back of
// whoever relies on it. Delete the reservation and create another instead.
//
// The rules compare values as they are written: 1000m is not "1", and 1 is not "1". Go clients rewrite quantities, so
// change a Reservation by a patch, as kubectl does; an update of the whole object is refused where a quantity was not
// written the way Go writes it. Comparing amounts is beyond what API servers before 1.35 let a rule cost.
//
// +kubebuilder:validation:XValidation:rule="(has(self.schedulerName) ? self.schedulerName : \"\") == (has(oldSelf.schedulerName) ? oldSelf.schedulerName : \"\")",message="schedulerName is immutable: delete the reservation and create another"
// +kubebuilder:validation:XValidation:rule="has(self.priority) == has(oldSelf.priority) && (!has(self.priority) || self.priority == oldSelf.priority)",message="priority is immutable: delete the reservation and create another"
// +kubebuilder:validation:XValidation:rule="has(self.consumers) == has(oldSelf.consumers) && (!has(self.consumers) || self.consumers == oldSelf.consumers)",message="consumers are immutable: delete the reservation and create another"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.ttl) || has(self.ttl)",message="ttl cannot be removed: 0s keeps the reservation until it is deleted"
type ReservationSpec struct {
	// SchedulerName is the scheduler whose pods the capacity is for. Empty: of any scheduler; a consumer of any other
	// may still use it. It is not what limits go by: the capacity counts for whoever made the reservation.
	// Kubernetes lets pods name any scheduler, and so does this: printable, at most 253 bytes.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[\p{L}\p{M}\p{N}\p{P}\p{S} ]*$`
	// +kubebuilder:validation:XValidation:rule="size(bytes(self)) <= 253",message="a scheduler's name has at most 253 bytes"
	SchedulerName string `json:"schedulerName,omitempty"`

	// Priority ranks the reservation among pods and other reservations, with the meaning of a pod's
	// spec.priority: the higher is placed first, and may take what is preemptible. From -2147483648 to 2147483647.
	// Absent: the priority of the pods that the slots name, or 0 where they name none.
	// +kubebuilder:validation:Minimum=-2147483648
	// +kubebuilder:validation:Maximum=2147483647
	Priority *int32 `json:"priority,omitempty"`

	// Preemptible lets a pod of higher priority take the capacity where it fits nowhere else. The whole
	// reservation then ends as Preempted, never one slot alone. Default false: nobody takes it.
	// +optional
	// +kubebuilder:default=false
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="preemptible is immutable: delete the reservation and create another"
	Preemptible bool `json:"preemptible"`

	// TTL is how long unused capacity is kept, counted from the moment it is available: a Go duration in
	// h, m, s and ms, such as "10m" or "1h30m", of at most ten years. 0s keeps it until the object is
	// deleted. Absent: the default of the server's policy. It may be extended and never shortened.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(h|m|s|ms))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('87600h')",message="ttl must be a duration such as 10m, of at most 87600h (ten years); 0s keeps the reservation until it is deleted"
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration('0s') || (duration(oldSelf) != duration('0s') && duration(self) >= duration(oldSelf))",message="ttl may be extended, not shortened: delete the reservation to end it early"
	TTL *metav1.Duration `json:"ttl,omitempty"`

	// AllocatePolicy says what happens when a pod uses a slot that is larger or smaller than the pod. Once, the default:
	// the first pod has the slot, and what it does not need is free at once. Aligned: pods share the slot until it ends,
	// and what they ask for beyond it comes from what is free on the node. Restricted: pods share the slot and, of the
	// resources it names, have no more than it keeps together; one that asks for more does not fit it.
	// +kubebuilder:default=Once
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="allocatePolicy is immutable: delete the reservation and create another"
	AllocatePolicy AllocatePolicy `json:"allocatePolicy,omitempty"`

	// Consumers says which pods of the Reservation's own namespace may use its slots. A slot that names a pod is for
	// that pod alone, whatever stands here. Absent or empty: no other pod may, and the capacity is only kept free.
	Consumers *ConsumerSpec `json:"consumers,omitempty"`

	// Slots are the pieces of capacity, at least one and at most 1000, each on one node. They become
	// available together.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="slots are immutable: delete the reservation and create another"
	Slots []Slot `json:"slots"`
}

// AllocatePolicy says how the pods that use a slot share its capacity.
//
// +kubebuilder:validation:Enum=Once;Aligned;Restricted
type AllocatePolicy string

const (
	// AllocateOnce gives the slot to the first pod that uses it; what the pod does not need is released at once.
	AllocateOnce AllocatePolicy = "Once"

	// AllocateAligned lets several pods share the slot, each of which may use free capacity of the node beyond it.
	AllocateAligned AllocatePolicy = "Aligned"

	// AllocateRestricted lets several pods share the slot and nothing but the slot: of the resources
	// it names they may use no more than it keeps.
	AllocateRestricted AllocatePolicy = "Restricted"
)

// ConsumerSpec says which pods may use the slots. At most one way may be set. Pods of other namespaces never match.
//
// +kubebuilder:validation:XValidation:rule="[has(self.index), has(self.selector), has(self.controller), has(self.gang)].filter(way, way).size() <= 1",message="at most one of index, selector, controller and gang may be set"
type ConsumerSpec struct {
	// Index matches pods whose annotation globalreserve.io/reservation-index has this value.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Index string `json:"index,omitempty"`

	// Selector matches pods by their labels. An empty selector, {}, matches every pod of the namespace.
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="operator must be In, NotIn, Exists or DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, (e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0))",message="In and NotIn need values, Exists and DoesNotExist take none"
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// Controller matches pods that this object controls, a Deployment across all its ReplicaSets.
	Controller *ControllerReference `json:"controller,omitempty"`

	// Gang matches the members of a gang, which may come later than the Reservation: the pods that name it as
	// their scheduler has them do. The gang starts where the slots, and free capacity beside them, suffice for all
	// that it needs.
	Gang *GangReference `json:"gang,omitempty"`
}

// GangReference names a gang of the Reservation's namespace. Neither it nor its object, such as a PodGroup, has to be
// there.
type GangReference struct {
	// Name is the gang's name, as its pods have it.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[^/]+$`
	Name string `json:"name"`

	// Kind is the kind of the gang, by a name of the policy's gangs.kinds: globalreserve, kubernetes, volcano,
	// scheduler-plugins, koordinator, godel or one of the cluster's own. Empty: any kind.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	Kind string `json:"kind,omitempty"`
}

// ControllerReference names a controller of pods in the Reservation's namespace.
type ControllerReference struct {
	// Kind is the controller's kind, such as Deployment, StatefulSet or Job.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Z][A-Za-z0-9]*$`
	Kind string `json:"kind"`

	// Name is the controller's name.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`
}

// Slot is capacity for one pod on one node. It also takes one of the node's pod count.
//
// +kubebuilder:validation:XValidation:rule="!has(self.nodeSelector) || size(self.nodeSelector) == 0 || !has(self.nodeName) || size(self.nodeName) == 0",message="nodeSelector is for a node the server chooses: leave out nodeSelector or nodeName"
type Slot struct {
	// Name tells the slots of a Reservation apart.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`

	// NodeName is the node the capacity is on. Empty: the server chooses, by best fit among the nodes that nodeSelector
	// selects and whose taints the slot tolerates. A Reservation that names a node that does not exist waits for it.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$`
	NodeName string `json:"nodeName,omitempty"`

	// NodeSelector limits the nodes the server may choose to those with all of these labels, at most 64. Empty: every
	// node.
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(key, size(key) > 0 && size(key) <= 317 && size(self[key]) <= 63)",message="a label's name has 1 to 317 characters, its value at most 63"
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Tolerations are the taints of a node that the slot may be on, as in a pod, at most 32. They count for a
	// node that is named, too: no capacity is taken on a cordoned node without the toleration for it.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.operator) || t.operator in ['', 'Exists', 'Equal', 'Lt', 'Gt'])",message="a toleration's operator must be Exists, Equal, Lt or Gt"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.effect) || t.effect in ['', 'NoSchedule', 'PreferNoSchedule', 'NoExecute'])",message="a toleration's effect must be NoSchedule, PreferNoSchedule or NoExecute"
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// Requests are the amounts to keep, in the units of a pod's requests: cpu in cores ("500m" is half a core), memory in
	// bytes ("8Gi"), extended resources in whole units. At least one and at most 64; a slot for a pod that requests
	// nothing says cpu: 0. The pod count is always one and not written here.
	// +mapType=atomic
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(name, size(name) > 0 && size(name) <= 317)",message="a resource's name has 1 to 317 characters"
	// +kubebuilder:validation:XValidation:rule="self.all(name, type(self[name]) == int ? self[name] >= 0 : !self[name].startsWith('-'))",message="an amount must not be negative"
	// +kubebuilder:validation:XValidation:rule="!('pods' in self)",message="leave out pods: a slot always counts as one pod"
	Requests corev1.ResourceList `json:"requests"`

	// HostPorts are ports of the node to keep free for the pod, at most 64.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	HostPorts []HostPort `json:"hostPorts,omitempty"`

	// Devices are devices of the node to keep: ExtendedResources, as claims ask for them, in at most 16
	// entries. The pods that use the slot are given these first.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Devices []SlotDevices `json:"devices,omitempty"`

	// Pod names the only pod that may use the slot.
	Pod *PodReference `json:"pod,omitempty"`
}

// SlotDevices are devices that a slot keeps, in the words of an ExtendedResourceClaim's spec.
type SlotDevices struct {
	// ClaimName is the ExtendedResourceClaim, of the Reservation's namespace, that the devices are kept for. While they
	// are kept no other pod can use that claim. Empty: for whichever claim the slot's pods have.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$`
	ClaimName string `json:"claimName,omitempty"`

	// ResourceName is the resource the devices are of: nvidia.com/gpu.
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	ResourceName string `json:"resourceName"`

	// Count is how many devices are kept, from 1, the default, to 64.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Count int32 `json:"count,omitempty"`

	// MatchProperties are properties with the very value a device must have, at most 32. Empty: any device.
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=32
	MatchProperties map[string]string `json:"matchProperties,omitempty"`

	// MatchExpressions are conditions on single properties, at most 32, all of which a device must meet. A slot with one
	// that makes no sense can never be met, and its Reservation fails.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	MatchExpressions []SlotDeviceRequirement `json:"matchExpressions,omitempty"`

	// ExtendedResourceNames are names of ExtendedResource objects that have to be among the devices, at most 64.
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	ExtendedResourceNames []string `json:"extendedResourceNames,omitempty"`

	// DeviceIDs are the deviceIDs of the very devices, at most 64, in a Reservation that the server made for what
	// it keeps already: these are kept again after a restart. Leave it out otherwise; to ask for
	// certain devices use extendedResourceNames.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	DeviceIDs []string `json:"deviceIDs,omitempty"`
}

// SlotDeviceRequirement is a PropertyRequirement of a slot. The server checks it: there may be too
// many slots for the API server to.
type SlotDeviceRequirement struct {
	// Key is the name of the property.
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key"`

	// Operator says how the device's value is compared with values. In: it is one of them. NotIn: it is none of them,
	// or the device has no such property. Exists: the device has the property, whatever its value. DoesNotExist: it has
	// not. Gt and Lt: it is a number or a quantity greater, or less, than the one value: 12Gi is greater than 8Gi.
	Operator PropertyOperator `json:"operator"`

	// Values are what the device's value is compared with: one or more, at most 64, for In and NotIn, none for Exists and
	// DoesNotExist, one number or quantity for Gt and Lt.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	Values []string `json:"values,omitempty"`
}

// HostPort is a port of the node, on one of its addresses or on all of them.
type HostPort struct {
	// HostIP is the node's address. Empty, or 0.0.0.0: every address.
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:Pattern=`^([0-9]{1,3}(\.[0-9]{1,3}){3}|[0-9a-fA-F:]*:[0-9a-fA-F:.]*)?$`
	HostIP string `json:"hostIP,omitempty"`

	// Protocol is that of the port: TCP, the default, UDP or SCTP.
	// +kubebuilder:default=TCP
	// +kubebuilder:validation:Enum=TCP;UDP;SCTP
	Protocol corev1.Protocol `json:"protocol,omitempty"`

	// Port is the number of the port, from 1 to 65535.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}

// PodReference names a pod of the Reservation's namespace.
type PodReference struct {
	// Name is the pod's name.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`

	// UID is the pod's UID. Empty: any pod of that name, which may not exist yet.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	UID types.UID `json:"uid,omitempty"`
}
