// Command gobench is Go's side of the benchmarks. benches/c is the other one:
// same workloads, options and output.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A workload does its work n times, checks the result and reports its figures.
type workload struct {
	name        string
	run         func(n int)
	count       int // default for -n
	unitOfCount string
	cold        bool // measured without a warm-up
}

var workloads = []workload{
	{"spawn_join", spawnJoin, 1_000_000, "goroutines", false},
	{"spawn_batch", spawnBatch, 5_000_000, "goroutines", false},
	{"yield2", yield2, 10_000_000, "yields", false},
	{"yield1k", yield1k, 10_000_000, "yields", false},
	{"pingpong", pingpong, 3_000_000, "round trips", false},
	{"chan_buf", chanBuf, 20_000_000, "items", false},
	{"mpmc", mpmc, 20_000_000, "items", false},
	{"mutex", mutex, 40_000_000, "locks", false},
	{"rwmutex", rwmutex, 20_000_000, "locks of each kind", false},
	{"select", select4, 3_000_000, "items", false},
	{"skynet", skynet, 2, "trees of 1,000,000 leaves", false},
	{"ring", ring, 5_000_000, "hops", false},
	{"sieve", sieve, 2, "sieves to the 2000th prime", false},
	{"fib", fib27, 5, "times fib(27)", false},
	{"timers", timers, 100_000, "goroutines", false},
	{"memory", memory, 1_000_000, "goroutines", true},
	{"syscalls", syscalls, 500, "sleeps for each of 4 goroutines", false},
	{"echo", echo, 100_000, "requests for each number of connections", false},
	{"files", files, 400_000, "reads and writes of each kind", false},
	{"timer", timer, 1000, "sleeps", false},
	{"preempt", preempt, 200, "sleeps", false},
	{"wake", wake, 2000, "wakes", false},
	{"writers", writers, 500, "bytes from each kind of writer", false},
	{"idle", idle, 3000, "ms", false},
	{"latency", latency, 200, "events for each kind of event and background", false},
}

type figure struct {
	name  string
	value float64
	unit  string
}

var figures []figure

// A figure is named after its workload; a second one has a suffix: "timers.cpu".
func report(name string, value float64, unit string) {
	figures = append(figures, figure{name, value, unit})
}

func reportNsEach(name string, start time.Time, n int) {
	report(name, float64(time.Since(start).Nanoseconds())/float64(n), "ns")
}

func msSince(start time.Time) float64 {
	return float64(time.Since(start).Nanoseconds()) / 1e6
}

// share is n spread over several goroutines, at least 1 for each.
func share(n, parts int) int {
	return max(1, n/parts)
}

func check(ok bool, what string) {
	if !ok {
		panic("wrong result: " + what)
	}
}

func usage() {
	fmt.Fprint(flag.CommandLine.Output(), `Usage: gobench [-p PROCS] [-n COUNT] WORKLOAD
       gobench list

Runs a workload on Go's runtime and prints a line for each figure: name value unit.
A tenth of COUNT is run first as a warm-up, except for memory.

  -p PROCS  GOMAXPROCS (default: Go's, one for each CPU)
  -n COUNT  amount of work

Workloads and what COUNT is by default:
`)
	for _, w := range workloads {
		fmt.Fprintf(flag.CommandLine.Output(), "  %-12s %8d %s\n", w.name, w.count, w.unitOfCount)
	}
}

func misuse(message string) {
	fmt.Fprintf(os.Stderr, "gobench: %s; try gobench -h\n", message)
	os.Exit(2)
}

func main() {
	flag.Usage = usage
	procs := flag.Int("p", 0, "")
	n := flag.Int("n", 0, "")
	flag.Parse()
	if *procs < 0 || *n < 0 {
		misuse("a number is out of range")
	}
	if flag.NArg() != 1 {
		misuse("one workload is needed")
	}
	if flag.Arg(0) == "list" {
		for _, w := range workloads {
			fmt.Println(w.name, w.count)
		}
		return
	}
	for _, w := range workloads {
		if w.name == flag.Arg(0) {
			if *procs > 0 {
				runtime.GOMAXPROCS(*procs)
			}
			if *n == 0 {
				*n = w.count
			}
			runWorkload(w, *n)
			return
		}
	}
	misuse("no such workload: " + flag.Arg(0))
}

func runWorkload(w workload, n int) {
	if !w.cold {
		w.run(share(n, 10))
		figures = nil
	}
	w.run(n)
	for _, f := range figures {
		fmt.Printf("%s %.3f %s\n", f.name, f.value, f.unit)
	}
}

// spawn_join and spawn_batch: goroutines that do nothing, started by one and
// waited for.

func spawnAndWait(n int) {
	var wg sync.WaitGroup
	done := wg.Done // one function value for all, so that a spawn allocates no closure
	wg.Add(n)
	for range n {
		go done()
	}
	wg.Wait()
}

func spawnJoin(n int) {
	start := time.Now()
	spawnAndWait(n)
	reportNsEach("spawn_join", start, n)
}

func spawnBatch(n int) {
	const batch = 1000
	batches := share(n, batch)

	start := time.Now()
	for range batches {
		spawnAndWait(batch)
	}
	reportNsEach("spawn_batch", start, batches*batch)
}

// yield2 and yield1k: goroutines that yield to each other.

func yieldAmong(name string, goroutines, n int) {
	var wg sync.WaitGroup
	each := share(n, goroutines)

	start := time.Now()
	for range goroutines {
		wg.Go(func() {
			for range each {
				runtime.Gosched()
			}
		})
	}
	wg.Wait()
	reportNsEach(name, start, each*goroutines)
}

func yield2(n int)  { yieldAmong("yield2", 2, n) }
func yield1k(n int) { yieldAmong("yield1k", 1000, n) }

// pingpong, chan_buf and mpmc: what a channel operation costs.

func pingpong(n int) {
	ping, pong := make(chan int), make(chan int)
	go func() {
		for ball := range ping {
			pong <- ball + 1
		}
		close(pong)
	}()

	ball := 0
	start := time.Now()
	for range n {
		ping <- ball
		ball = <-pong
	}
	reportNsEach("pingpong", start, n)

	check(ball == n, "pingpong")
	close(ping)
	<-pong
}

// Producers send 1, 2, ... each; consumers add up until the channel is closed.
func produceAndConsume(name string, onEachSide, capacity, n int) {
	var producers, consumers sync.WaitGroup
	var total atomic.Int64
	items := make(chan int, capacity)
	each := share(n, onEachSide)

	start := time.Now()
	for range onEachSide {
		producers.Go(func() {
			for i := 1; i <= each; i++ {
				items <- i
			}
		})
		consumers.Go(func() {
			sum := 0
			for item := range items {
				sum += item
			}
			total.Add(int64(sum))
		})
	}
	producers.Wait()
	close(items)
	consumers.Wait()
	reportNsEach(name, start, each*onEachSide)

	check(int(total.Load()) == onEachSide*(each*(each+1)/2), name)
}

func chanBuf(n int) { produceAndConsume("chan_buf", 1, 1024, n) }
func mpmc(n int)    { produceAndConsume("mpmc", 4, 128, n) }

// mutex: eight goroutines count under one lock.

func mutex(n int) {
	const goroutines = 8
	var wg sync.WaitGroup
	var lock sync.Mutex
	value := 0
	each := share(n, goroutines)

	start := time.Now()
	for range goroutines {
		wg.Go(func() {
			for range each {
				lock.Lock()
				value++
				lock.Unlock()
			}
		})
	}
	wg.Wait()
	reportNsEach("mutex", start, each*goroutines)

	check(value == each*goroutines, "mutex")
}

// rwmutex: eight goroutines read a value under one lock; then each in ten steps
// counts it up.

func rwmutex(n int) {
	const (
		goroutines  = 8
		stepsAWrite = 10
	)
	var lock sync.RWMutex
	value := 0
	each := share(n, goroutines*stepsAWrite) * stepsAWrite
	look := func() int {
		lock.RLock()
		seen := value
		lock.RUnlock()
		return seen
	}
	all := func(name string, f func()) {
		var wg sync.WaitGroup
		start := time.Now()
		for range goroutines {
			wg.Go(f)
		}
		wg.Wait()
		reportNsEach(name, start, each*goroutines)
	}

	all("rwmutex.read", func() {
		for range each {
			check(look() == 0, "rwmutex")
		}
	})
	all("rwmutex.mixed", func() {
		last := 0
		for i := range each {
			if i%stepsAWrite == 0 {
				lock.Lock()
				value++
				lock.Unlock()
			} else {
				seen := look()
				check(seen >= last, "rwmutex")
				last = seen
			}
		}
	})
	check(value == each/stepsAWrite*goroutines, "rwmutex")
}

// select: one goroutine receives from four unbuffered channels, each with a
// sender of its own.

func select4(n int) {
	each := share(n, 4)
	sender := func() chan int {
		out := make(chan int)
		go func() {
			for i := 1; i <= each; i++ {
				out <- i
			}
		}()
		return out
	}

	start := time.Now()
	a, b, c, d := sender(), sender(), sender(), sender()
	sum := 0
	for range 4 * each {
		select {
		case item := <-a:
			sum += item
		case item := <-b:
			sum += item
		case item := <-c:
			sum += item
		case item := <-d:
			sum += item
		}
	}
	reportNsEach("select", start, 4*each)

	check(sum == 4*(each*(each+1)/2), "select")
}

// skynet: a tree of goroutines, ten children each, a million leaves; every
// node sends its sum up.

func grow(up chan<- int, number, size int) {
	if size == 1 {
		up <- number
		return
	}
	const children = 10
	down := make(chan int)
	for i := range children {
		go grow(down, number+i*(size/children), size/children)
	}
	sum := 0
	for range children {
		sum += <-down
	}
	up <- sum
}

func skynet(n int) {
	const leaves = 1_000_000
	up := make(chan int)

	start := time.Now()
	for range n {
		go grow(up, 0, leaves)
		check(<-up == leaves*(leaves-1)/2, "skynet")
	}
	report("skynet", msSince(start)/float64(n), "ms")
}

// ring: a token goes round a thousand goroutines.

func ring(n int) {
	const goroutines = 1000
	laps := share(n, goroutines)
	first := make(chan int)

	// This goroutine is one of them, which starts each lap.
	start := time.Now()
	last := first
	for range goroutines - 1 {
		in, out := last, make(chan int)
		go func() {
			for range laps {
				out <- <-in + 1
			}
		}()
		last = out
	}
	token := 0
	for range laps {
		first <- token + 1
		token = <-last
	}
	reportNsEach("ring", start, laps*goroutines)

	check(token == laps*goroutines, "ring")
}

// sieve: the prime sieve, a goroutine for each prime up to the 2000th.

const (
	primes    = 2000
	lastPrime = 17389
)

func generate(out chan<- int) {
	for i := 2; i <= lastPrime; i++ {
		out <- i
	}
	close(out)
}

func filter(in <-chan int, out chan<- int, prime int) {
	for i := range in {
		if i%prime != 0 {
			out <- i
		}
	}
	close(out)
}

func findPrimes() (found, last int) {
	ch := make(chan int)
	go generate(ch)
	for {
		prime, ok := <-ch
		if !ok {
			return found, last
		}
		next := make(chan int)
		go filter(ch, next, prime)
		ch = next
		found++
		last = prime
	}
}

func sieve(n int) {
	start := time.Now()
	for range n {
		found, last := findPrimes()
		check(found == primes && last == lastPrime, "sieve")
	}
	report("sieve", msSince(start)/float64(n), "ms")
}

// fib: fib(27), a goroutine for each left branch. In Go a channel is quicker for
// this than a WaitGroup, which benches/c uses.

func fib(n int) int {
	if n < 2 {
		return n
	}
	left := make(chan int, 1)
	go func() { left <- fib(n - 1) }()
	right := fib(n - 2)
	return <-left + right
}

func fib27(n int) {
	start := time.Now()
	for range n {
		check(fib(27) == 196418, "fib")
	}
	report("fib", msSince(start)/float64(n), "ms")
}

// timers: many goroutines sleep ten times each, once for 1, 2, ... 10 ms in an
// order of their own.

func cpuSeconds() float64 {
	var usage syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	check(err == nil, "getrusage")
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

func timers(n int) {
	var wg sync.WaitGroup

	cpu := cpuSeconds()
	start := time.Now()
	for index := range n {
		wg.Go(func() {
			for i := range 10 {
				ms := 1 + (index*7+i*3)%10
				time.Sleep(time.Duration(ms) * time.Millisecond)
			}
		})
	}
	wg.Wait()
	report("timers", msSince(start), "ms")
	report("timers.cpu", cpuSeconds()-cpu, "s")
}

// memory: what a parked goroutine costs, what one costs that has not run yet,
// and how long a crowd takes to appear.

type crowd struct {
	gate        chan struct{}
	ready, gone sync.WaitGroup
	started     atomic.Int64
}

func (c *crowd) park() {
	c.started.Add(1)
	c.ready.Done()
	<-c.gate
	c.gone.Done()
}

func (c *crowd) spawnParked(n int) {
	park := c.park // one function value for all, so that a spawn allocates no closure
	c.ready.Add(n)
	c.gone.Add(n)
	for range n {
		go park()
	}
}

// The second number of /proc/self/statm is the resident pages.
func residentBytes() float64 {
	text, err := os.ReadFile("/proc/self/statm")
	check(err == nil, "/proc/self/statm")
	pages, err := strconv.Atoi(string(bytes.Fields(text)[1]))
	check(err == nil, "/proc/self/statm")
	return float64(pages) * float64(os.Getpagesize())
}

// With one P no other goroutine runs until this goroutine waits or its time slice
// ends; in that case a smaller batch is tried. Earlier batches stay parked, so
// every batch needs fresh memory.
func (c *crowd) unstartedBytesEach(batch int) float64 {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	bytes := -1.0

	for ; bytes < 0 && batch > 0; batch /= 2 {
		runtime.Gosched()
		started := c.started.Load()
		before := residentBytes()
		c.spawnParked(batch)
		after := residentBytes()
		if c.started.Load() == started {
			bytes = (after - before) / float64(batch)
		}
		c.ready.Wait()
	}
	check(bytes >= 0, "memory.unstarted")
	return bytes
}

func memory(n int) {
	crowd := crowd{gate: make(chan struct{})}
	unstarted := crowd.unstartedBytesEach(share(n, 100))

	before := residentBytes()
	start := time.Now()
	crowd.spawnParked(n)
	crowd.ready.Wait()
	create := msSince(start)
	report("memory", (residentBytes()-before)/float64(n), "bytes")
	report("memory.create", create, "ms")
	report("memory.unstarted", unstarted, "bytes")

	close(crowd.gate)
	crowd.gone.Wait()
}

// syscalls: four goroutines in blocking system calls beside two that compute.

func blockingMs() {
	left := syscall.Timespec{Nsec: 1_000_000}
	for syscall.Nanosleep(&left, &left) == syscall.EINTR {
	}
}

// step is some tens of us of computing.
func step(x uint64) uint64 {
	for range 20000 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

var sink atomic.Uint64

// undisturbedStepsPerMs is what a core does when nothing disturbs it: the best
// of ten stretches of 10 ms.
func undisturbedStepsPerMs() float64 {
	best := 0.0
	for range 10 {
		start, steps, x := time.Now(), 0, uint64(1)
		for ; msSince(start) < 10; steps++ {
			x = step(x)
		}
		best = max(best, float64(steps)/msSince(start))
		sink.Add(x)
	}
	return best
}

func syscalls(n int) {
	var sleepers, computers sync.WaitGroup
	var stop atomic.Bool
	var total atomic.Int64
	wholeCore := undisturbedStepsPerMs()

	start := time.Now()
	for range 2 {
		computers.Go(func() {
			steps, x := 0, uint64(1)
			for ; !stop.Load(); steps++ {
				x = step(x)
			}
			total.Add(int64(steps))
			sink.Add(x)
		})
	}
	for range 4 {
		sleepers.Go(func() {
			for range n {
				blockingMs()
			}
		})
	}
	sleepers.Wait()
	ms := msSince(start)
	stop.Store(true)
	computers.Wait()
	computingMs := msSince(start)

	report("syscalls", ms, "ms")
	report("syscalls.compute", float64(total.Load())/wholeCore/computingMs, "cores")
}

// echo: a TCP server that sends back what it gets, a goroutine for each
// connection; load/echoload, which is beside this program, asks it.

func echoBack(conn net.Conn) {
	defer conn.Close()
	block := make([]byte, 4096)
	for {
		n, err := conn.Read(block)
		if err == io.EOF {
			return
		}
		check(err == nil, "echo")
		_, err = conn.Write(block[:n])
		check(err == nil, "echo")
	}
}

func load(port, connections, n int) {
	self, err := os.Executable()
	check(err == nil, "os.Executable")
	command := exec.Command(filepath.Join(filepath.Dir(self), "echoload"),
		strconv.Itoa(port), strconv.Itoa(connections), strconv.Itoa(n))
	command.Stderr = os.Stderr
	answer, err := command.Output()
	check(err == nil, "echoload")
	var rate, p99, cpu, switches float64
	_, err = fmt.Sscan(string(answer), &rate, &p99, &cpu, &switches)
	check(err == nil, "echoload")
	report(fmt.Sprint("echo.rate_", connections), rate, "req/s")
	report(fmt.Sprint("echo.p99_", connections), p99, "us")
	report(fmt.Sprint("echo.cpu_", connections), cpu, "us")
	report(fmt.Sprint("echo.switches_", connections), switches, "switches")
}

func echo(n int) {
	var connections sync.WaitGroup
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err == nil, "net.Listen")
	accepting := make(chan struct{})
	go func() {
		defer close(accepting)
		for {
			conn, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			check(err == nil, "Accept")
			connections.Go(func() { echoBack(conn) })
		}
	}()

	port := listener.Addr().(*net.TCPAddr).Port
	load(port, 1, n)
	load(port, 100, n)
	load(port, 1000, n)

	connections.Wait()
	listener.Close()
	<-accepting
}

// files: goroutines read and write files that are in memory, and two hand bytes to
// each other through pipes.

const (
	fileWorkers = 8
	fileBlock   = 4096
	fileBlocks  = 256
	smallBlock  = 512
	wholeBlocks = 4
)

func temporary(dir string) *os.File {
	file, err := os.CreateTemp(dir, "gobench.")
	check(err == nil, "CreateTemp")
	_, err = file.Write(bytes.Repeat([]byte{'x'}, fileBlocks*fileBlock))
	check(err == nil, "Write")
	return file
}

// letAll lets fileWorkers do f, n times together.
func letAll(name string, n int, f func(i int, block []byte)) {
	each := share(n, fileWorkers)
	start := time.Now()
	var done sync.WaitGroup
	for range fileWorkers {
		done.Go(func() {
			block := make([]byte, fileBlock)
			for i := range each {
				f(i, block)
			}
		})
	}
	done.Wait()
	reportNsEach(name, start, each*fileWorkers)
}

func readBlocks(name string, file *os.File, n int) {
	letAll(name, n, func(i int, block []byte) {
		_, err := file.ReadAt(block, int64(i%fileBlocks)*fileBlock)
		check(err == nil, name)
	})
}

func throughPipes(n int) {
	thereOut, thereIn, err := os.Pipe()
	check(err == nil, "Pipe")
	backOut, backIn, err := os.Pipe()
	check(err == nil, "Pipe")
	go func() {
		block := make([]byte, 1)
		for {
			_, err := thereOut.Read(block)
			if err == io.EOF {
				break
			}
			check(err == nil, "pipe")
			_, err = backIn.Write(block)
			check(err == nil, "pipe")
		}
		thereOut.Close()
		backIn.Close()
	}()
	block := []byte{'z'}
	start := time.Now()
	for range n {
		_, err := thereIn.Write(block)
		check(err == nil, "pipe")
		_, err = backOut.Read(block)
		check(err == nil, "pipe")
	}
	reportNsEach("files.pipe", start, n)
	thereIn.Close()
	_, err = backOut.Read(block)
	check(err == io.EOF, "pipe")
	backOut.Close()
}

func files(n int) {
	file := temporary("")
	readBlocks("files.read", file, n)
	letAll("files.write", n, func(i int, block []byte) {
		_, err := file.WriteAt(block[:smallBlock], int64(i%fileBlocks)*fileBlock)
		check(err == nil, "files.write")
	})
	check(file.Truncate(wholeBlocks*fileBlock) == nil, "Truncate")
	letAll("files.whole", n/4, func(_ int, block []byte) {
		whole, err := os.Open(file.Name())
		check(err == nil, "files.whole")
		total := 0
		for {
			n, err := whole.Read(block)
			total += n
			if err == io.EOF {
				break
			}
			check(err == nil, "files.whole")
		}
		check(total == wholeBlocks*fileBlock, "files.whole")
		whole.Close()
	})
	os.Remove(file.Name())
	file.Close()

	file = temporary("/dev/shm")
	readBlocks("files.tmpfs", file, n)
	os.Remove(file.Name())
	file.Close()

	throughPipes(n / 4)
}

// timer, preempt, wake, idle: how late a sleeper wakes, alone or beside an endless
// loop, or whom another thread wakes; and what an idle runtime costs.

// The name ends with what separates it from "p50".
func reportLate(name string, late []time.Duration, unit time.Duration, unitName string) {
	slices.Sort(late)
	report(name+"p50", float64(late[len(late)/2])/float64(unit), unitName)
	report(name+"p99", float64(late[len(late)*99/100])/float64(unit), unitName)
}

func reportLateness(name string, n int, sleep, unit time.Duration, unitName string) {
	late := make([]time.Duration, n)
	for i := range late {
		start := time.Now()
		time.Sleep(sleep)
		late[i] = time.Since(start) - sleep
		check(late[i] >= 0, name)
	}
	reportLate(name+".", late, unit, unitName)
}

func timer(n int) { reportLateness("timer", n, 2*time.Millisecond, time.Microsecond, "us") }

func preempt(n int) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var loop sync.WaitGroup
	var stop atomic.Bool
	loop.Go(func() {
		count := uint64(0)
		for !stop.Load() {
			count++
		}
		sink.Add(count)
	})
	reportLateness("preempt", n, time.Millisecond, time.Millisecond, "ms")
	stop.Store(true)
	loop.Wait()
}

// wake: a goroutine that has an OS thread for itself stands for a thread that is
// none of the runtime's, which would need cgo.
func wake(n int) {
	rung, heard := make(chan time.Time, 1), make(chan struct{}, 1)
	go func() {
		runtime.LockOSThread()
		for range n {
			time.Sleep(500 * time.Microsecond)
			rung <- time.Now()
			<-heard
		}
	}()
	late := make([]time.Duration, n)
	for i := range late {
		late[i] = time.Since(<-rung)
		heard <- struct{}{}
	}
	reportLate("wake.", late, time.Microsecond, "us")
}

func idle(n int) {
	// So that all of the runtime has been awake before.
	var passed sync.WaitGroup
	for range 1000 {
		passed.Go(runtime.Gosched)
	}
	passed.Wait()

	cpu := cpuSeconds()
	start := time.Now()
	time.Sleep(time.Duration(n) * time.Millisecond)
	report("idle", (cpuSeconds()-cpu)*1e3/msSince(start)*100, "%")
}
