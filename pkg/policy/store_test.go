package policy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReservationTTL(t *testing.T) {
	const fallback = 60 * time.Second
	plain := Default()
	ruled := Default()
	ruled.Reservations = Reservations{DefaultTTL: duration(10 * time.Minute), MaxTTL: duration(time.Hour)}
	ruled.Schedulers = []Scheduler{{Name: "short", MaxReservationTTL: duration(time.Minute)}, {Name: "plain"}}
	tiny := Default()
	tiny.Reservations.MaxTTL = duration(time.Second)

	tests := map[string]struct {
		policy    *Policy
		scheduler string
		asked     time.Duration
		want      time.Duration
		err       string
	}{
		"fallback":                   {policy: plain, want: fallback},
		"fallback above the maximum": {policy: tiny, want: time.Second},
		"policy's default":           {policy: ruled, scheduler: "plain", want: 10 * time.Minute},
		"default, shorter scheduler": {policy: ruled, scheduler: "short", want: time.Minute},
		"asked":                      {policy: plain, asked: time.Nanosecond, want: time.Nanosecond},
		"asked for the maximum":      {policy: ruled, asked: time.Hour, want: time.Hour},
		"asked for more": {policy: ruled, asked: time.Hour +
			1, err: "is longer than the 1h0m0s that the policy allows: ask for less, or leave it out to have 10m0s"},
		"asked for more, listed": {
			policy: ruled, scheduler: "plain", asked: 2 * time.Hour,
			err: "the 1h0m0s that the policy allows: ",
		},
		"scheduler asked for more": {
			policy: ruled, scheduler: "short", asked: 2 * time.Minute,
			err: "2m0s is longer than the 1m0s that the policy allows scheduler short",
		},
		"asked for less than nothing": {
			policy: plain, asked: -time.Second,
			err: "-1s is negative: ask for up to 24h0m0s, or leave it out to have 1m0s",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := NewStore(tt.policy, fallback).ReservationTTL(tt.scheduler, tt.asked)
			if tt.err == "" {
				require.NoError(t, err)
				assert.Equal(t, tt.want, got)
				return
			}
			assert.ErrorContains(t, err, tt.err)
		})
	}
}

// TestDeletedPodTTL: deleted pods have a default and a maximum of their own; the default of other reservations does
// not count for them.
func TestDeletedPodTTL(t *testing.T) {
	p := Default()
	p.Reservations.DefaultTTL = duration(time.Hour)
	s := NewStore(p, 45*time.Second)
	ttl, err := s.DeletedPodTTL("any", 0)
	require.NoError(t, err)
	assert.Equal(t, 45*time.Second, ttl, "the flag")

	own := *p
	own.DeletedPods = DeletedPods{Enabled: true, DefaultTTL: duration(30 * time.Second), MaxTTL: duration(time.Minute)}
	s.Set(&own)
	ttl, err = s.DeletedPodTTL("any", 0)
	require.NoError(t, err)
	assert.Equal(t, 30*time.Second, ttl)
	ttl, err = s.DeletedPodTTL("any", time.Minute)
	require.NoError(t, err)
	assert.Equal(t, time.Minute, ttl)
	_, err = s.DeletedPodTTL("any", 61*time.Second)
	require.ErrorContains(t, err, "longer than the 1m0s that the policy allows for deleted pods")
	other, err := s.ReservationTTL("any", 0)
	require.NoError(t, err)
	assert.Equal(t, time.Hour, other)
}
