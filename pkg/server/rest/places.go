package rest

import "sync"

// moreKept is how many of the kept places one caller may have.
const moreKept = 8

// places are those for watchers. A caller has at most half of them, and a quarter is kept for those who have none yet,
// so that mirrors find one whoever else watches. Programs of one caller are told apart by what they say they are: on
// loopback all have the same address.
type places struct {
	most int

	mu       sync.Mutex // guards what follows
	taken    int
	callers  map[string]int
	programs map[[2]string]int // by caller and program
}

func newPlaces(most int) *places {
	return &places{most: most, callers: map[string]int{}, programs: map[[2]string]int{}}
}

// take takes a place, if there is one for this program of this caller. leave gives it back.
func (p *places) take(caller, program string) (leave func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := [2]string{caller, program}
	share, free := p.most/2, p.most-p.most/4
	normal := p.taken < free && p.callers[caller] < share
	kept := p.programs[one] == 0 && p.taken < p.most && p.callers[caller] < share+moreKept
	if !normal && !kept {
		return nil, false
	}
	p.taken++
	p.callers[caller]++
	p.programs[one]++
	return func() { p.leave(one) }, true
}

func (p *places) leave(one [2]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if p.callers[one[0]]--; p.callers[one[0]] == 0 {
		delete(p.callers, one[0])
	}
	if p.programs[one]--; p.programs[one] == 0 {
		delete(p.programs, one)
	}
}

// open is how many places are taken.
func (p *places) open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}
