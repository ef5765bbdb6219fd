package gangsched

import (
	"cmp"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// keyOf returns the key of the pod's gang, and whether this scheduler is to place it.
func (s *Scheduler) keyOf(pod *corev1.Pod) (string, bool) {
	name := pod.Annotations[v1alpha1.GangAnnotation]
	return pod.Namespace + "/" + name, name != "" && pod.Spec.SchedulerName == s.name
}

// members returns all pods of a gang, from the informer.
func (s *Scheduler) members(key string) ([]*corev1.Pod, error) {
	objects, err := s.podIndex.ByIndex(gangIndex, key)
	if err != nil {
		return nil, err
	}
	pods := make([]*corev1.Pod, 0, len(objects))
	for _, object := range objects {
		pods = append(pods, object.(*corev1.Pod))
	}
	return pods, nil
}

// podEvents returns the handler of pod events. An event of a gang's own pod queues that gang, and one that frees
// capacity queues all gangs that wait for some.
func (s *Scheduler) podEvents() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { s.podChanged(object.(*corev1.Pod)) },
		UpdateFunc: func(before, now any) {
			pod := now.(*corev1.Pod)
			s.podChanged(pod)
			if isFinished(pod) && !isFinished(before.(*corev1.Pod)) {
				s.wakeWaiting()
			}
		},
		DeleteFunc: func(object any) {
			if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			pod, ok := object.(*corev1.Pod)
			if !ok {
				return
			}
			s.forget(pod.UID)
			s.podChanged(pod)
			s.wakeWaiting()
		},
	}
}

func (s *Scheduler) podChanged(pod *corev1.Pod) {
	if pod.Spec.NodeName != "" {
		s.forget(pod.UID)
	}
	if key, ours := s.keyOf(pod); ours {
		s.queue.Add(key)
	}
}

func (s *Scheduler) wakeWaiting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.waiting {
		s.queue.Add(key)
	}
}

func (s *Scheduler) setWaiting(key string, waits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if waits {
		s.waiting[key] = true
	} else {
		delete(s.waiting, key)
	}
}

// assume remembers the node of a pod that is being bound until the informer shows it.
func (s *Scheduler) assume(uid types.UID, node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.assumed[uid] = node
}

func (s *Scheduler) forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.assumed, uid)
}

// knownNodes returns a function that returns the node of a pod, also when only this scheduler knows it
// yet. Call it before the pods are read: an event in between makes the scheduler forget what it
// assumed, and the pods that were read before it do not show their nodes.
func (s *Scheduler) knownNodes() func(*corev1.Pod) string {
	s.mu.Lock()
	assumed := maps.Clone(s.assumed)
	s.mu.Unlock()
	return func(pod *corev1.Pod) string { return cmp.Or(pod.Spec.NodeName, assumed[pod.UID]) }
}

// allExist reports whether every pod of the plan is still there, by what the informer knows now.
func (s *Scheduler) allExist(plan []placement) bool {
	for i := range plan {
		pod, err := s.pods.Pods(plan[i].pod.Namespace).Get(plan[i].pod.Name)
		if err != nil || pod.UID != plan[i].pod.UID || pod.DeletionTimestamp != nil {
			return false
		}
	}
	return true
}
