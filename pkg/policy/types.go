package policy

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
)

const (
	// apiVersion is what a policy file must carry in apiVersion.
	apiVersion = "config.globalreserve.io/v1alpha1"
	// policyKind is what a policy file must carry in kind.
	policyKind = "GlobalReservePolicy"

	// defaultMaxTTL is the longest a reservation may last where the file does not say.
	defaultMaxTTL = 24 * time.Hour
	// DefaultGangDeadline is how long capacity is kept for the rest of a gang where the file does not say.
	DefaultGangDeadline = time.Minute
	// maxGangDeadline is the most that the file may say.
	maxGangDeadline = 24 * time.Hour

	// maxSchedulerName is how long the name of a scheduler may be, in bytes. Kubernetes itself takes any name.
	maxSchedulerName = 253
	// maxWeight is the highest weight of a resource; the lowest is 1.
	maxWeight = 100
	// maxReservationMatch is the highest value of Prioritize.ReservationMatch: the highest score of
	// the extender protocol (MaxExtenderPriority of k8s.io/kube-scheduler/extender/v1).
	maxReservationMatch = 10
)

// Policy is one policy, as the file has it and with its defaults filled in. It is never changed once it is in a Store.
//
// +kubebuilder:object:root=true
type Policy struct {
	metav1.TypeMeta `json:",inline"`
	// Schedulers has rules for single schedulers. One that is not listed may reserve too.
	Schedulers []Scheduler `json:"schedulers,omitempty"`
	// Namespaces has limits of what the reservations of namespaces keep, by the name of the namespace. Those of
	// DefaultNamespace are for every namespace that is not named.
	Namespaces map[string]Namespace `json:"namespaces,omitempty"`
	// DeletedPods says whether, and for how long, the capacity of deleted pods is kept for those that ask for it.
	DeletedPods DeletedPods `json:"deletedPods"`
	// Reservations bounds how long capacity is held for pods that are not bound yet.
	Reservations Reservations `json:"reservations"`
	// Prioritize says which of the nodes that fit are preferred.
	Prioritize Prioritize `json:"prioritize"`
	// Gangs says which pods are useful only together.
	Gangs Gangs `json:"gangs"`
	// Autoscaling is what the server writes for cluster autoscalers.
	Autoscaling Autoscaling `json:"autoscaling"`
}

// Gangs is the rules for pods that are useful only together.
type Gangs struct {
	// Deadline is how long capacity is kept for the other members once one is bound, counted anew with each that is
	// bound: at least that, and half as much again at most.
	Deadline metav1.Duration `json:"deadline"`
	// Kinds are the kinds of gangs there are: those of the file, and after them the defaults that it does not name.
	// They count from when the server starts.
	Kinds []kinds.Kind `json:"kinds"`
	// Redirect is for pods of gangs whose kind does not say it, and for those of none that have a slot of their own.
	Redirect kinds.Redirect `json:"redirect"`
}

// Scheduler is the rules for the pods of one scheduler.
type Scheduler struct {
	// Name is the scheduler's name as in pod.spec.schedulerName.
	Name string `json:"name"`
	// Callers are the users that may act for it, besides those that a role gives the right to.
	Callers []string `json:"callers,omitempty"`
	// Limits is the most that each of Callers may use, with all pods that it had bound and all reservations that it
	// made together, whatever scheduler they name. Nobody else may act for a scheduler with limits then, role or not.
	Limits map[corev1.ResourceName]Amount `json:"limits,omitempty"`
	// MaxReservationTTL is the longest its reservations may last; 0 means Reservations.MaxTTL.
	MaxReservationTTL metav1.Duration `json:"maxReservationTTL,omitzero"`
	// Prioritize says which nodes are preferred for its pods; what it leaves out is as in Policy.Prioritize.
	Prioritize *SchedulerPrioritize `json:"prioritize,omitempty"`
}

// SchedulerPrioritize is what is different for one scheduler from Policy.Prioritize.
type SchedulerPrioritize struct {
	Strategy         Strategy         `json:"strategy,omitempty"`
	Resources        []ResourceWeight `json:"resources,omitempty"`
	ReservationMatch *int64           `json:"reservationMatch,omitempty"`
}

// DefaultNamespace is the key of the limits for all namespaces that are not named, the one called default among them.
const DefaultNamespace = "default"

// Namespace is the limits of one namespace. What its pods and reservations use together is limited by its
// ResourceQuota.
type Namespace struct {
	// MaxReserved is the most that its reservations may keep beyond what their pods use, by resource.
	MaxReserved map[corev1.ResourceName]Amount `json:"maxReserved,omitempty"`
	// MaxSlots is how many slots its reservations may have, those in memory included; nil means any number.
	MaxSlots *int64 `json:"maxSlots,omitempty"`
}

// DeletedPods is the rules for the capacity of deleted pods.
type DeletedPods struct {
	// Enabled says whether any is kept.
	Enabled bool `json:"enabled"`
	// DefaultTTL is for pods that name no time; 0 means that the server's flag decides.
	DefaultTTL metav1.Duration `json:"defaultTTL,omitzero"`
	// MaxTTL is the longest any may be kept; 0 means Reservations.MaxTTL.
	MaxTTL metav1.Duration `json:"maxTTL,omitzero"`
}

// Reservations bounds the lifetime of reservations. Times count from when the capacity was granted.
type Reservations struct {
	// DefaultTTL is used for a request that asks for none; 0 means that the file does not say and
	// the server's flag decides.
	DefaultTTL metav1.Duration `json:"defaultTTL,omitzero"`
	// MaxTTL is the longest any reservation may last.
	MaxTTL metav1.Duration `json:"maxTTL"`
}

// Prioritize says how nodes are ordered for a pod.
type Prioritize struct {
	// Strategy is whether full or empty nodes are preferred.
	Strategy Strategy `json:"strategy"`
	// Resources are those the use of a node is judged by, each with its weight; never empty.
	Resources []ResourceWeight `json:"resources"`
	// ReservationMatch is how strongly a node is preferred that holds a reservation the pod may use:
	// 0 is not at all, 10 above every other node.
	ReservationMatch int64 `json:"reservationMatch"`
}

// Strategy is a way to order nodes by how much of them is used. The names are those of
// kube-scheduler's NodeResourcesFit scoring strategies.
type Strategy string

const (
	// MostAllocated prefers full nodes, which keeps large gaps free for large pods and gangs.
	MostAllocated Strategy = "MostAllocated"
	// LeastAllocated prefers empty nodes, which spreads pods.
	LeastAllocated Strategy = "LeastAllocated"
)

// ResourceWeight is how much one resource counts in a node's score.
type ResourceWeight struct {
	// Name is a resource as in a container's requests.
	Name corev1.ResourceName `json:"name"`
	// Weight is from 1 to 100; 0 in a file is 1, as in kube-scheduler's own scoring.
	Weight int64 `json:"weight"`
}

// Default is the policy of a server that was given no file.
func Default() *Policy {
	return &Policy{
		TypeMeta:     metav1.TypeMeta{APIVersion: apiVersion, Kind: policyKind},
		DeletedPods:  DeletedPods{Enabled: true},
		Reservations: Reservations{MaxTTL: metav1.Duration{Duration: defaultMaxTTL}},
		Prioritize: Prioritize{
			Strategy: MostAllocated, Resources: defaultResources(),
			ReservationMatch: maxReservationMatch,
		},
		Gangs: Gangs{
			Deadline: metav1.Duration{Duration: DefaultGangDeadline}, Kinds: kinds.Default(),
			Redirect: kinds.RedirectWhenRefused,
		},
		Autoscaling: defaultAutoscaling(),
	}
}
