package httpjson

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// maxQueue is how many requests of one caller wait for a seat.
const maxQueue = 256

var errQueue = Errorf(http.StatusTooManyRequests, "too many of your requests are waiting: send fewer at a time")

// Seats has no more requests worked on at a time than there are processors for it. Callers take turns: who sends
// many requests waits behind its own.
type Seats struct {
	wait time.Duration

	mu     sync.Mutex // guards what follows
	free   int
	queues map[string][]chan struct{} // those who wait, by caller; no queue is empty
	next   []string                   // the callers in queues, in the order of their turns
}

// NewSeats returns so many seats, and how long one waits for one at most.
func NewSeats(n int, wait time.Duration) *Seats {
	return &Seats{wait: wait, free: n, queues: map[string][]chan struct{}{}}
}

// Take waits for a seat. leave gives it back. Its errors are of the status 429 where too many of the caller wait, and 503
// where none came in time.
func (s *Seats) Take(ctx context.Context, caller string) (leave func(), err error) {
	turn, err := s.enter(caller)
	if turn == nil {
		return s.leave, err
	}
	timer := time.NewTimer(s.wait)
	defer timer.Stop()
	select {
	case <-turn:
		return s.leave, nil
	case <-timer.C:
	case <-ctx.Done():
	}
	if !s.abandon(caller, turn) {
		s.leave() // it came at the same moment
	}
	return nil, errBusy
}

// enter takes a seat, or returns what is closed when it is the caller's turn to have one.
func (s *Seats) enter(caller string) (turn chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free > 0 {
		s.free--
		return nil, nil
	}
	queue := s.queues[caller]
	if len(queue) == maxQueue {
		return nil, errQueue
	}
	if len(queue) == 0 {
		s.next = append(s.next, caller)
	}
	turn = make(chan struct{})
	s.queues[caller] = append(queue, turn)
	return turn, nil
}

// leave passes a seat on.
func (s *Seats) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.next) == 0 {
		s.free++
		return
	}
	caller := s.next[0]
	s.next = s.next[1:]
	queue := s.queues[caller]
	close(queue[0])
	if len(queue) == 1 {
		delete(s.queues, caller)
		return
	}
	s.queues[caller] = queue[1:]
	s.next = append(s.next, caller)
}

// abandon takes one that waits out of its queue, and reports false where it has a seat by now.
func (s *Seats) abandon(caller string, turn chan struct{}) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	queue := s.queues[caller]
	for i := range queue {
		if queue[i] != turn {
			continue
		}
		if len(queue) > 1 {
			s.queues[caller] = append(queue[:i:i], queue[i+1:]...)
			return true
		}
		delete(s.queues, caller)
		for j := range s.next {
			if s.next[j] == caller {
				s.next = append(s.next[:j:j], s.next[j+1:]...)
				break
			}
		}
		return true
	}
	return false
}
