package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

const (
	// gangLabel is on the pods of a gang.
	gangLabel         = "gang"
	gangSchedulerName = "gang-scheduler"
)

// gangScheduler reserves for all pods of a gang at once, and binds them then.
type gangScheduler struct{ *scheduler }

// reservation is the body of a /reserve or /unreserve.
type reservation struct {
	SchedulerName string
	Pods          []v1.Pod
	Nodes         []string
	TTLSeconds    int64  `json:",omitempty"`
	RequestID     string `json:",omitempty"`
	Durable       *bool  `json:",omitempty"`
}

// maxTTL is the longest that a reservation lasts, in seconds: what is still kept when nothing happens any more ends.
const maxTTL = 60

func (s *gangScheduler) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(milliseconds(s.random, 2*maxPause*s.cluster.pace())):
		}
		s.look(ctx)
		if len(s.pods) == 0 || len(s.nodes) == 0 {
			continue
		}
		s.cluster.steps.Add(1)
		gang := s.pods[s.random.IntN(len(s.pods))].Labels[gangLabel]
		var pods []v1.Pod
		for i := range s.pods {
			if s.pods[i].Labels[gangLabel] == gang {
				pods = append(pods, s.pods[i])
			}
		}
		s.startGang(ctx, pods)
	}
}

// startGang reserves for pods, binds them, and gives back what it does not need.
func (s *gangScheduler) startGang(ctx context.Context, pods []v1.Pod) {
	server := s.cluster.anyProcess(s.random)
	if server == nil {
		return
	}
	good := s.filter(ctx, server, &pods[0])
	if len(good) == 0 {
		return
	}
	r := &reservation{
		SchedulerName: s.name, TTLSeconds: 10 + s.random.Int64N(maxTTL-10),
		RequestID: fmt.Sprintf("request-%d", s.random.Uint64()),
	}
	if s.random.IntN(4) == 0 {
		r.Durable = new(bool)
	}
	for i := range pods {
		named := v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pods[i].Namespace, Name: pods[i].Name, UID: pods[i].UID}}
		r.Pods, r.Nodes = append(r.Pods, named), append(r.Nodes, good[s.random.IntN(len(good))])
	}
	answer := s.reserve(ctx, r)
	if answer != nil && answer.Error == "" && s.random.IntN(4) == 0 {
		s.repeat(ctx, r, answer)
	}
	if answer == nil || answer.Error == "" && !s.bindAll(ctx, pods, r, answer) {
		s.giveBack(ctx, r, answer)
	}
}

// tries is how often a scheduler asks again where it did not hear the answer.
const tries = 3

// reserve sends a /reserve, again where it does not know what became of it. It returns nil where it never knows.
func (s *gangScheduler) reserve(ctx context.Context, r *reservation) *reserver.Answer {
	until := time.Now().Add(time.Duration(r.TTLSeconds) * time.Second) // or longer, as it begins later
	for range tries {
		server := s.cluster.anyProcess(s.random)
		if server == nil {
			return nil
		}
		answer, err := s.askOnce(ctx, server, "/reserve", r)
		if err != nil {
			s.cluster.note(s.name, "does not know whether %s reserves %s: %v", server.name, names(r.Pods), err)
			continue
		}
		s.cluster.note(s.name, "reserves %s on %v by %s: reservation %q, durable %t, until %s: %s", names(r.Pods), r.Nodes,
			server.name, answer.Reservation, answer.Durable, answer.ExpiresAt.Format(time.TimeOnly), answer.Error)
		namespace, name, ok := strings.Cut(answer.Reservation, "/")
		switch {
		case ok && answer.Error == "":
			s.cluster.judge.acknowledged(types.NamespacedName{Namespace: namespace, Name: name}, until, r.Pods)
			s.read(ctx, name)
		case answer.Error != "":
			s.cluster.judge.refusedGang(r.RequestID, r.Pods, answer.Error)
		}
		return answer
	}
	s.cluster.judge.refusedGang(r.RequestID, r.Pods, "nothing was done") // or it is not known, see askOnce
	return nil
}

// askOnce sends a /reserve or /unreserve. Where it is not known what was done, that may be done later.
func (s *gangScheduler) askOnce(ctx context.Context, server *process, path string, r *reservation,
) (*reserver.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer := &reserver.Answer{}
	err := server.ask(ctx, s.name, "POST", path, r, answer)
	if refusedAsWrong(err) {
		s.cluster.fail("%s of %s makes no sense: %w", path, names(r.Pods), err)
	}
	if err != nil && !undone(err) || strings.Contains(answer.Error, "not known") {
		s.cluster.judge.doubt(r.Pods)
	}
	return answer, err
}

// repeat sends a /reserve again that was answered, as if that had not been heard.
func (s *gangScheduler) repeat(ctx context.Context, r *reservation, first *reserver.Answer) {
	server := s.cluster.anyProcess(s.random)
	if server == nil {
		return
	}
	if again, err := s.askOnce(ctx, server, "/reserve", r); err == nil {
		s.cluster.note(s.name, "repeats %s to %s: reservation %q: %s", r.RequestID, server.name, again.Reservation,
			again.Error)
		s.cluster.judge.repeated(r.Pods, first, again)
	}
}

// read asks any server what is kept. Each answers as the one that decides does: a Reservation that was acknowledged is
// listed, and what is kept for pods is listed no more when it was given back.
func (s *gangScheduler) read(ctx context.Context, acknowledged string, givenBack ...v1.Pod) {
	server := s.cluster.anyProcess(s.random)
	if server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var answer reserver.ReservationsAnswer
	if err := server.ask(ctx, s.name, "GET", "/v1/reservations", nil, &answer); err != nil {
		return
	}
	s.cluster.judge.listed(server.name, answer.Reservations, acknowledged, givenBack)
}

// bindAll binds the pods where capacity is kept for them, and reports whether all are bound. It may give up before.
func (s *gangScheduler) bindAll(ctx context.Context, pods []v1.Pod, r *reservation, answer *reserver.Answer) bool {
	all := true
	for i := range pods {
		if s.random.IntN(10) == 0 {
			return false
		}
		time.Sleep(milliseconds(s.random, 500))
		server := s.cluster.anyProcess(s.random)
		if server == nil {
			return false
		}
		asked, cancel := context.WithTimeout(ctx, askTimeout)
		bound := answer.Durable && s.random.IntN(4) == 0 && s.bindAlone(asked, &pods[i], r.Nodes[i]) ||
			s.bind(asked, server, &pods[i], r.Nodes[i])
		cancel()
		all = all && bound
	}
	return all
}

// giveBack gives back what was reserved, until some server has said that it has.
func (s *gangScheduler) giveBack(ctx context.Context, r *reservation, answer *reserver.Answer) {
	if answer != nil {
		_, name, _ := strings.Cut(answer.Reservation, "/")
		s.cluster.judge.returned(name)
	}
	back := &reservation{SchedulerName: r.SchedulerName, Pods: r.Pods, Nodes: r.Nodes}
	for ctx.Err() == nil {
		if server := s.cluster.anyProcess(s.random); server != nil {
			asked := time.Now()
			said, err := s.askOnce(ctx, server, "/unreserve", back)
			s.cluster.note(s.name, "gives back what is kept for %s by %s: %s %v", names(r.Pods), server.name, said.Error, err)
			if err == nil {
				given := slices.DeleteFunc(slices.Clone(r.Pods), func(pod v1.Pod) bool {
					return slices.Contains(said.FailedPods, pod.Name)
				})
				s.cluster.judge.givenBack(given, asked)
				s.read(ctx, "", given...)
				return
			}
		}
		time.Sleep(milliseconds(s.random, maxPause))
	}
}

func names(pods []v1.Pod) string {
	list := make([]string, len(pods))
	for i := range pods {
		list[i] = pods[i].Name
	}
	return strings.Join(list, ", ")
}

// newGangScheduler returns the scheduler of gangs, who binds by itself, too.
func (c *Cluster) newGangScheduler() (*gangScheduler, error) {
	s := &scheduler{cluster: c, name: gangSchedulerName, random: rand.New(rand.NewPCG(c.options.Seed, 300))}
	var err error
	s.alone, err = c.client(s.name)
	return &gangScheduler{s}, err
}

// maxGangs is how many names gangs have.
const maxGangs = 6

// createGang creates the pods of a gang, as far as they are not there yet.
func (c *Cluster) createGang(ctx context.Context) {
	gang := fmt.Sprintf("gang-%d", c.random.IntN(maxGangs))
	for i := range 2 + c.random.IntN(2) {
		pod := c.newPod()
		pod.Name, pod.Labels = fmt.Sprintf("%s-%d", gang, i), map[string]string{gangLabel: gang}
		pod.Spec.SchedulerName = gangSchedulerName
		c.createPod(ctx, pod)
	}
}
