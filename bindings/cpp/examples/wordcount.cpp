// wordcount: counts the words of all files under some directories, in parallel. examples-c/wordcount.c in C++:
//
//     walk --paths--> read --text--> count --> merge, sort, print
//
//   g++ -std=c++17 -O2 wordcount.cpp -o wordcount $(pkg-config --cflags --libs gosched)
//   ./wordcount /usr/share/doc
//
// A word is a run of the letters A to Z, made lower case. --all prints every word, else the 20 most frequent.
#include <gosched.hpp>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <unordered_map>
#include <vector>

namespace fs = std::filesystem;
using counts = std::unordered_map<std::string, std::uint64_t>;

static std::atomic<bool> something_failed{false};

static void failed(const fs::path &path, const std::string &why)
{
    something_failed = true;
    std::fprintf(stderr, "wordcount: %s: %s\n", path.c_str(), why.c_str());
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/// Sends every regular file below the directory. Symbolic links are not followed.
static void walk(const fs::path &top, const gs::send_chan<fs::path> &paths)
{
    std::error_code e;
    fs::recursive_directory_iterator at(top, e);
    for (; !e && at != fs::recursive_directory_iterator(); at.increment(e)) {
        if (at->symlink_status().type() == fs::file_type::regular)
            paths.send(at->path());
    }
    if (e)
        failed(top, e.message());
}

/// Reads files and sends their text in pieces that end between words.
static void read(const gs::recv_chan<fs::path> &paths, const gs::send_chan<std::string> &text)
{
    constexpr std::size_t piece = 64 * 1024;
    for (const fs::path &path : paths) {
        std::ifstream in;
        std::string rest;
        {
            gs::syscall_section section; // a disk may be slow: others have the P meanwhile
            in.open(path, std::ios::binary);
        }
        if (!in) {
            failed(path, "can't be opened");
            continue;
        }
        while (in) {
            std::string now = std::move(rest);
            const std::size_t had = now.size();
            now.resize(had + piece);
            {
                gs::syscall_section section;
                in.read(now.data() + had, piece);
            }
            now.resize(had + static_cast<std::size_t>(in.gcount()));
            std::size_t end = now.size();
            while (in && end > 0 && is_letter(now[end - 1]))
                end--;
            rest.assign(now, end);
            now.resize(end);
            text.send(std::move(now));
        }
        if (in.bad())
            failed(path, "can't be read");
    }
}

static counts count(const gs::recv_chan<std::string> &text)
{
    counts found;
    for (const std::string &piece : text) {
        std::string word;
        for (char c : piece) {
            if (is_letter(c)) {
                word += static_cast<char>(c | 0x20);
            } else if (!word.empty()) {
                found[word]++;
                word.clear();
            }
        }
        if (!word.empty())
            found[word]++;
    }
    return found;
}

static counts count_all(const std::vector<fs::path> &directories)
{
    const int procs = gs_gomaxprocs(0);
    const gs::chan<fs::path> paths(256);
    const gs::chan<std::string> text(static_cast<std::size_t>(4 * procs));

    std::vector<gs::goroutine<counts>> counters;
    for (int i = 0; i < procs; i++)
        counters.push_back(gs::go(count, text));
    gs::task_group readers; // the first exception of any part cancels the others, and is thrown by wait()
    for (int i = 0; i < 2 * procs; i++)
        readers.go(read, paths, text);
    readers.go([&] {
        for (const fs::path &directory : directories)
            walk(directory, paths);
        paths.close();
    });
    readers.wait();
    text.close();

    counts all;
    for (auto &counter : counters)
        for (const auto &[word, n] : counter.get())
            all[word] += n;
    return all;
}

int main(int argc, char **argv)
{
    const bool all = argc > 1 && std::strcmp(argv[1], "--all") == 0;
    const std::vector<fs::path> directories(argv + 1 + all, argv + argc);
    if (directories.empty()) {
        std::fprintf(stderr, "usage: wordcount [--all] DIR...\n");
        return 2;
    }
    const auto start = gs::clock::now();
    const counts found = gs::run(count_all, directories);
    std::vector<std::pair<std::string, std::uint64_t>> sorted(found.begin(), found.end());
    std::sort(sorted.begin(), sorted.end(), [](const auto &a, const auto &b) {
        return a.second != b.second ? a.second > b.second : a.first < b.first;
    });
    if (!all && sorted.size() > 20)
        sorted.resize(20);
    for (const auto &[word, n] : sorted)
        std::printf("%7ju %s\n", static_cast<std::uintmax_t>(n), word.c_str());
    const std::chrono::duration<double> took = gs::clock::now() - start;
    std::fprintf(stderr, "%zu distinct words, %.3f s\n", found.size(), took.count());
    return something_failed;
}
