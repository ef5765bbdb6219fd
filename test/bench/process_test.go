package bench

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"
)

// clockTick is the unit of the times in /proc/PID/stat. The kernel's USER_HZ is 100 on every architecture Go runs on.
const clockTick = time.Second / 100

// cpuTime is the processor time a process has used so far, in user and kernel mode.
func cpuTime(pid int) (time.Duration, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is the command's name in parentheses, which may hold anything.
	fields := bytes.Fields(content[bytes.LastIndexByte(content, ')')+1:])
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read the times of process %d: %w", pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}

// memory returns the resident memory of a process in bytes: now, and the most so far.
func memory(pid int) (now, peak int64, err error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range bytes.Lines(content) {
		var kib int64
		if _, err := fmt.Sscanf(string(line), "VmRSS: %d kB", &kib); err == nil {
			now = kib << 10
		}
		if _, err := fmt.Sscanf(string(line), "VmHWM: %d kB", &kib); err == nil {
			peak = kib << 10
		}
	}
	if now == 0 || peak == 0 {
		return 0, 0, fmt.Errorf("/proc/%d/status tells no memory", pid)
	}
	return now, peak, nil
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

func median[T float64 | time.Duration](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
